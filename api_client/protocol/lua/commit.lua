-- commit: replace the entry, but only while the record carries exactly this token and nonce.
--
-- KEYS[1]  entry
-- KEYS[2]  record
-- ARGV[1]  token               number
-- ARGV[2]  nonce               8 bytes
-- ARGV[3]  entry               bytes   the new entry, with token and nonce; only its header if it prolongs an entry
-- ARGV[4]  hard_ttl_ms         ms      TTL and grace, after which Redis drops the key
-- ARGV[5]  retention_ms        ms
-- ARGV[6]  channel             text    on which waiters listen
-- ARGV[7]  prolongs            8 bytes the nonce of the entry whose payload stays; '' for none
--
-- returns  1 accepted, 2 accepted as stale (a soft invalidation came during the run),
--          3 superseded, 4 invalidated (a hard one came), 5 lost (the record is gone),
--          6 the previous entry is gone (nothing has changed, and the run goes on)
-- keeps    I1 (one winner), I2 (tokens never go back), I3 (nothing read before an invalidation is stored as fresh),
--          I6 (the record goes in the same step); without a record nothing is ever written
local now = clock_us()
local entry, record = read_entry(KEYS[1]), read_record(KEYS[2])
local token, nonce = ARGV[1], ARGV[2]

if record.state == nil or text(record.token) ~= token or record.nonce ~= nonce then
  if entry and text(entry.token) == token and entry.nonce == nonce then
    -- The reply to the first try was lost. An invalidation before or after it needs one more refresh.
    return entry.generation > entry.token and 2 or 1
  end
  return record.state == nil and 5 or 3
end
if entry and entry.token >= record.token then
  return 3
end
if record.hard > record.token then
  if record.state == 'queued' then
    redis.call('HDEL', KEYS[2], 'token', 'nonce', 'limit', 'attempts')
  else
    rest_invalidated(KEYS[2], record, now, tonumber(ARGV[5]))
  end
  return 4
end

local content = ARGV[3]
if ARGV[7] ~= '' then
  -- Evicted, expired, or an older entry since a failover: not the one that the run found unchanged.
  if not entry or entry.nonce ~= ARGV[7] then
    return 6
  end
  content = content .. redis.call('GETRANGE', KEYS[1], entry.header_length, -1)
end

redis.call('SET', KEYS[1], content, 'PX', ARGV[4])
local stale = record.generation > record.token
if stale then
  redis.call('SETRANGE', KEYS[1], 28, struct.pack('>I8I8', record.generation, now))
end
if record.state == 'queued' then
  -- A late commit, after somebody has claimed the lapsed lease: that claim goes on, and this run is over.
  redis.call('HDEL', KEYS[2], 'token', 'nonce', 'limit', 'failures', 'failures_until', 'attempts')
elseif stale then
  rest_invalidated(KEYS[2], record, now, tonumber(ARGV[5]))
else
  redis.call('DEL', KEYS[2])
end
notify(ARGV[6], 'committed')
return stale and 2 or 1
