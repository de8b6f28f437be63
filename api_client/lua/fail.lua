-- fail: the refresh is given up; the key cools, and those who wait are told.
--
-- KEYS[1]  record
-- ARGV[1]  token               number
-- ARGV[2]  nonce               8 bytes
-- ARGV[3]  cooling_us          µs      no claim but a forced one passes until then
-- ARGV[4]  kind                text    of the failure
-- ARGV[5]  attempts            number
-- ARGV[6]  retention_ms        ms
-- ARGV[7]  channel             text
--
-- returns  1 cooling, 0 not mine any more
-- keeps    the entry: a stale value is served as long as its grace lasts
local now = clock_us()
local record = read_record(KEYS[1])
if record.state == 'cooling' and record.ended_by == ARGV[2] then
  return 1
end
if record.state ~= 'running' or text(record.token) ~= ARGV[1] or record.nonce ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'state', 'cooling', 'until', text(now + tonumber(ARGV[3])), 'kind', ARGV[4],
  'attempts', ARGV[5], 'ended_by', ARGV[2])
redis.call('HDEL', KEYS[1], 'token', 'nonce', 'limit')
redis.call('PEXPIRE', KEYS[1], text(math.ceil(tonumber(ARGV[3]) / 1000) + tonumber(ARGV[6])))
redis.call('PUBLISH', ARGV[7], 'failed')
return 1
