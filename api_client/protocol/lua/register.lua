-- register: record that entries of this version of a query can exist, so that an invalidation reaches them.
--
-- KEYS[1]  versions
-- ARGV[1]  version             number, or for a worker's loader batched:number or takes:number:params
-- ARGV[2]  lives_ms            ms      after which no entry of a load that begins soon can exist
--
-- returns  1
-- keeps    I3 over versions: a worker registers before it acquires, so a version that an invalidation does not find
--          has loaded nothing yet. A version is never forgotten before the time that any worker has set, by Redis' clock
local now = clock_us()
local forgotten_at = text(now + tonumber(ARGV[2]) * 1000)
local failed = add_or_raise(KEYS[1], forgotten_at, ARGV[1])
if failed then
  return failed
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], text(math.ceil(tonumber(last[2]) / 1000)))
return 1
