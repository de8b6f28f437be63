-- renew: a run that goes on keeps its lease.
--
-- KEYS[1]  record
-- ARGV[1]  token               number
-- ARGV[2]  nonce               8 bytes
-- ARGV[3]  lease_us            µs      from now, never beyond the run's limit
--
-- returns  µs for which the lease holds; 0: it is not mine any more, or ran out
-- keeps    a lease that ran out is not brought back: somebody may have acted on it
local now = clock_us()
local record = read_record(KEYS[1])
if record.state ~= 'running' or text(record.token) ~= ARGV[1] or record.nonce ~= ARGV[2]
  or record.deadline <= now or record.limit <= now then
  return '0'
end
local deadline = math.min(now + tonumber(ARGV[3]), record.limit)
redis.call('HSET', KEYS[1], 'until', text(deadline))
return text(deadline - now)
