-- tag_take: take over an invalidation of tags that makes no progress.
--
-- KEYS[1]  pending
-- ARGV[1]  lease_ms            ms      for which no other worker takes it
--
-- returns  its description, or '' if none is due
-- keeps    one worker at a time while it makes progress; two do no harm. A deadline farther away than any would be set
--          dates from before the clock was set back, and has passed
local now, lease_us = clock_us(), tonumber(ARGV[1]) * 1000
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(now), 'LIMIT', 0, 1)[1]
  or redis.call('ZRANGEBYSCORE', KEYS[1], text(now + lease_us + TOLERATED), '+inf', 'LIMIT', 0, 1)[1]
if due then
  redis.call('ZADD', KEYS[1], 'XX', text(now + lease_us), due)
end
return due or ''
