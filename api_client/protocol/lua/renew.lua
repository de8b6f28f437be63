-- renew: extend the lease of a run in progress.
--
-- KEYS[1]  record
-- ARGV[1]  token               number
-- ARGV[2]  nonce               8 bytes
-- ARGV[3]  lease_us            µs      from now, never beyond the run's limit
--
-- returns  µs for which the lease holds; 0: it is lost or has expired
-- keeps    an expired lease is not revived, since somebody may have acted on its end. One that counts as over because
--          the clock was set back is revived, within the rest of its limit at the last renewal
local now = clock_us()
local record = read_record(KEYS[1])
if record.state ~= 'running' or text(record.token) ~= ARGV[1] or record.nonce ~= ARGV[2]
  or record.deadline <= now or record.limit <= now then
  return '0'
end
local limit = math.min(record.limit, now + (record.limit - record.since))
local deadline = math.min(now + tonumber(ARGV[3]), limit)
redis.call('HSET', KEYS[1], 'since', text(now), 'until', text(deadline), 'limit', text(limit))
return text(deadline - now)
