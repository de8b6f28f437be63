-- republish: grant the right to publish a queued refresh once more. So a lost message or a dead claimer costs a waiting
-- reader one second, and one with a stale value five; a duplicate costs one read of the record.
--
-- KEYS[1]  record
-- ARGV[1]  interval_us         µs      after the first publication; doubles with each further one
--
-- returns  {status, claim_number}
--          status: 1 publish it now under claim_number, 0 not due or no longer queued
-- keeps    at most one publication per interval, over all callers
local now = clock_us()
local f = redis.call('HMGET', KEYS[1], 'state', 'published', 'republished', 'claim_number')
if f[1] ~= 'queued' then
  return { 0, '0' }
end
local published, times = tonumber(f[2]), tonumber(f[3])
if now < published + tonumber(ARGV[1]) * 2 ^ times and not is_ahead(published, now) then
  return { 0, '0' }
end
redis.call('HSET', KEYS[1], 'published', text(now), 'republished', text(times + 1))
return { 1, f[4] }
