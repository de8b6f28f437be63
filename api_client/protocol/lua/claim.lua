-- claim: grant the right to publish one refresh of a key; deduplicates queued refreshes.
--
-- KEYS[1]  entry
-- KEYS[2]  record
-- ARGV[1]  claim_id            text    the same id again is the same claim
-- ARGV[2]  seen_token          number  the token of the entry that the caller saw; '' for any
-- ARGV[3]  queue_ttl_us        µs      how long the claim holds until an acquire
-- ARGV[4]  retention_ms        ms      how long the record outlives its deadline
-- ARGV[5]  force               0|1     1 passes cooling
-- ARGV[6]  bookmarks           lines   that this claim's load reads after; ignored if the claim is refused
-- ARGV[7]  by                  text    the claimer, for people
--
-- returns  {status, state, left_us, kind, attempts, number, claim_number, now_us, why}
--          status: 1 claimed, 2 already refreshed, 3 refused (because of this state, for left_us)
--          number: the stamp of this call; a larger token was drawn after this call
-- keeps    one claim per key at a time; token and nonce of a lapsed run stay, so that its late commit can be judged;
--          that run counts as a failed attempt.
--          A claim's bookmarks affect only its own load, so a bad one fails no other load
local now = clock_us()
local entry, record = read_entry(KEYS[1]), read_record(KEYS[2])
local claim_id, seen_token, force = ARGV[1], ARGV[2], ARGV[5] == '1'

if record.state == 'queued' and record.claim == claim_id then
  return { 1, 'queued', text(left_us(record, now)), '', 0, text(record.claim_number),
    text(record.claim_number), text(now), '' }
end

local number = draw(now, record, entry)
if record.state then
  redis.call('HSET', KEYS[2], 'number', text(number))
end
if seen_token ~= '' and entry and text(entry.token) ~= seen_token then
  return { 2, record.state or 'idle', '0', '', 0, text(number), '0', text(now), '' }
end

local free = not record.state or is_over(record, now) or record.state == 'invalidated'
  or (force and record.state == 'cooling') or (record.cools_only_bookmarks and ARGV[6] == '')
if not free then
  return { 3, record.state, text(left_us(record, now)), record.kind, record.attempts, text(number),
    text(record.claim_number), text(now), record.why }
end

local queue_ttl_us = tonumber(ARGV[3])
redis.call('HSET', KEYS[2], 'state', 'queued', 'since', text(now), 'until', text(now + queue_ttl_us),
  'number', text(number), 'claim', claim_id, 'claim_number', text(number), 'claimed_at', text(now),
  'published', text(now), 'republished', '0', 'claim_bookmarks', ARGV[6], 'by', ARGV[7])
redis.call('HDEL', KEYS[2], 'ticket', 'kind', 'why', 'attempts', 'ended_by', 'cools_only_bookmarks')
local attempts = failed_attempts(record)
if attempts > 0 then
  redis.call('HSET', KEYS[2], 'attempts', text(attempts))
end
local life_ms = math.ceil(queue_ttl_us / 1000) + tonumber(ARGV[4])
if record.failures > 0 then
  -- A pause is remembered for as long as `fail` has set.
  keep_at_least(KEYS[2], life_ms)
else
  keep_record(KEYS[2], record, now, life_ms)
end
return { 1, 'queued', text(queue_ttl_us), '', 0, text(number), text(number), text(now), '' }
