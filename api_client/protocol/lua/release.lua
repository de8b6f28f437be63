-- release: a run ends without a result and without a failure; the key is as if nobody had claimed it.
--
-- KEYS[1]  record
-- ARGV[1]  token               number
-- ARGV[2]  nonce               8 bytes
-- ARGV[3]  retention_ms        ms
--
-- returns  1 released, 0 not mine any more
-- keeps    an invalidation that waits for a read goes on waiting; failed attempts and a row of failures still count
local record = read_record(KEYS[1])
if record.state ~= 'running' or text(record.token) ~= ARGV[1] or record.nonce ~= ARGV[2] then
  return 0
end
rest(KEYS[1], record, ARGV[3])
return 1
