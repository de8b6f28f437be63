-- tag_keep: store an invalidation of tags as pending, so that a worker finishes it if it makes no progress.
--
-- KEYS[1]  pending
-- ARGV[1]  invalidation        text    its whole description
-- ARGV[2]  lease_ms            ms      after which a worker may take it over
-- ARGV[3]  renew               0|1     1: only if it is still pending
--
-- returns  1
-- keeps    I3 after a crash of the invalidator, since this comes before its mark. Each invalidation is a member of its
--          own, so another one of the same tags never removes it
local until_us = text(clock_us() + tonumber(ARGV[2]) * 1000)
if ARGV[3] == '1' then
  redis.call('ZADD', KEYS[1], 'XX', until_us, ARGV[1])
else
  redis.call('ZADD', KEYS[1], until_us, ARGV[1])
end
return 1
