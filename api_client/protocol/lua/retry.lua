-- retry: end a run that has failed for now, and keep the record through the pause for the bearer of the ticket.
--
-- KEYS[1]  record
-- ARGV[1]  token               number
-- ARGV[2]  nonce               8 bytes
-- ARGV[3]  ticket              text    travels in the retry's message, and its acquire uses it up
-- ARGV[4]  pause_us            µs      pause and slack, after which anyone may claim
-- ARGV[5]  kind                text    of the failure
-- ARGV[6]  attempts            number  so far
-- ARGV[7]  retention_ms        ms
--
-- returns  1 kept, 0 the lease is lost
-- keeps    the failed run's token commits nothing afterwards
local now = clock_us()
local record = read_record(KEYS[1])
if record.state == 'retrying' and record.ticket == ARGV[3] then
  return 1
end
if record.state ~= 'running' or text(record.token) ~= ARGV[1] or record.nonce ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'state', 'retrying', 'since', text(now), 'until', text(now + tonumber(ARGV[4])),
  'ticket', ARGV[3], 'kind', ARGV[5], 'attempts', ARGV[6])
redis.call('HDEL', KEYS[1], 'token', 'nonce', 'limit')
keep_record(KEYS[1], record, now, math.ceil(tonumber(ARGV[4]) / 1000) + tonumber(ARGV[7]))
return 1
