-- hand_back: put a run back into the queue, because its worker shuts down or could not register a tag.
--
-- KEYS[1]  record
-- ARGV[1]  token               number
-- ARGV[2]  nonce               8 bytes becomes the claim's id, so that the step may be repeated
-- ARGV[3]  queue_ttl_us        µs
-- ARGV[4]  retention_ms        ms
--
-- returns  {status, claim_number}
--          status: 1 queued again under claim_number, 0 the lease is lost
-- keeps    the ended run's token commits nothing afterwards
local now = clock_us()
local record = read_record(KEYS[1])
if record.state == 'queued' and record.claim == ARGV[2] then
  return { 1, text(record.claim_number) }
end
if record.state ~= 'running' or text(record.token) ~= ARGV[1] or record.nonce ~= ARGV[2] then
  return { 0, '0' }
end
local queue_ttl_us = tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'state', 'queued', 'since', text(now), 'until', text(now + queue_ttl_us),
  'claim', ARGV[2], 'published', text(now), 'republished', '0')
redis.call('HDEL', KEYS[1], 'token', 'nonce', 'limit')
keep_record(KEYS[1], record, now, math.ceil(queue_ttl_us / 1000) + tonumber(ARGV[4]))
return { 1, text(record.claim_number) }
