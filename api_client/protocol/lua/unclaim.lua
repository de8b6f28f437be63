-- unclaim: take back one's own claim, which could not be published.
--
-- KEYS[1]  record
-- ARGV[1]  claim_id            text
-- ARGV[2]  retention_ms        ms
-- ARGV[3]  forget              0|1     1: forget the counts of attempts and failures
--
-- returns  1 taken back, 0 it was no longer queued under this id
-- keeps    a pending invalidation stays; failed attempts and a row of failures still count
local now = clock_us()
local record = read_record(KEYS[1])
if record.state ~= 'queued' or record.claim ~= ARGV[1] then
  return 0
end
if ARGV[3] == '1' then
  redis.call('HDEL', KEYS[1], 'failures', 'failures_until', 'attempts')
  record.failures, record.attempts = 0, 0
end
if record.failures > 0 or record.attempts > 0 then
  end_claim(KEYS[1], record.generation > 0 and 'invalidated' or 'idle')
  keep_at_least(KEYS[1], tonumber(ARGV[2]))
elseif record.generation > 0 then
  rest_invalidated(KEYS[1], record, now, tonumber(ARGV[2]))
else
  redis.call('DEL', KEYS[1])
end
return 1
