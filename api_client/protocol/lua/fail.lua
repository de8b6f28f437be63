-- fail: the refresh has failed; the key cools, longer each time in a row, and waiters are notified.
--
-- KEYS[1]  record
-- ARGV[1]  token               number
-- ARGV[2]  nonce               8 bytes
-- ARGV[3]  cooling_us          µs      no claim but a forced one passes until then
-- ARGV[4]  kind                text    of the failure
-- ARGV[5]  attempts            number
-- ARGV[6]  retention_ms        ms
-- ARGV[7]  channel             text
-- ARGV[8]  longest_us          µs      the pause doubles with each failure in a row, up to this; 0: the failure is no
--                                      fault of the key, is not counted, and the pause is the first one
-- ARGV[9]  bookmarks           0|1|2   1: the graph did not reach those that the load was given; 2: it refused them
-- ARGV[10] why                 text    what readers are told of the failure; '' for no more than its kind
--
-- returns  {status, pause_us, failures, failed_token}
--          status: 1 cooling, 0 not mine any more
--          failures: in a row, this one included; failed_token: of the failed run before this one, 0 for none,
--          and where the step is repeated
-- keeps    the entry: a stale value is served as long as its grace lasts. The count goes through claims, also such
--          as are taken back, and runs; a commit, an invalidation, and a pause that passed as long ago as it was long
--          end it, unless the refresh that fails had been claimed by then.
--          I3: bookmarks of invalidations go only where the graph refused them, the claim had none of its own that may
--          have been at fault, and no invalidation has come since. Where bookmarks at fault go, claims that have none
--          pass the cooling
local now = clock_us()
local record = read_record(KEYS[1])
if record.state == 'cooling' and record.ended_by == ARGV[2] then
  return { 1, text(left_us(record, now)), record.failures, '0' }
end
if record.state ~= 'running' or text(record.token) ~= ARGV[1] or record.nonce ~= ARGV[2] then
  return { 0, '0', 0, '0' }
end
local pause_us, longest_us = tonumber(ARGV[3]), tonumber(ARGV[8])
-- Bookmarks of an invalidation keep a record, and what it counts, for longer.
local failures = record.claimed_at < record.failures_until and record.failures or 0
if longest_us > 0 then
  failures = failures + 1
  pause_us = math.min(pause_us * 2 ^ (failures - 1), math.max(longest_us, pause_us))
end
redis.call('HSET', KEYS[1], 'state', 'cooling', 'since', text(now), 'until', text(now + pause_us), 'kind', ARGV[4],
  'attempts', ARGV[5], 'ended_by', ARGV[2], 'failures', text(failures), 'failed_token', ARGV[1])
if ARGV[10] ~= '' then
  redis.call('HSET', KEYS[1], 'why', ARGV[10])
end
redis.call('HDEL', KEYS[1], 'token', 'nonce', 'limit', 'claim_bookmarks')
local are_refused = ARGV[9] == '2' and record.claim_bookmarks == '' and record.generation < record.token
if (are_refused and record.bookmarks ~= '') or (ARGV[9] ~= '0' and record.claim_bookmarks ~= '') then
  redis.call('HSET', KEYS[1], 'cools_only_bookmarks', '1')
end
if are_refused then
  redis.call('HDEL', KEYS[1], 'bookmarks', 'bookmarks_before', 'bookmarks_since')
  record.bookmarks_since = 0
end
local pause_ms = math.ceil(pause_us / 1000)
local remembered_ms = pause_ms + math.max(tonumber(ARGV[6]), pause_ms)
redis.call('HSET', KEYS[1], 'failures_until', text(now + remembered_ms * 1000))
keep_record(KEYS[1], record, now, remembered_ms)
notify(ARGV[7], 'failed')
return { 1, text(pause_us), failures, text(record.failed_token) }
