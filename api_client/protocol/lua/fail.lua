-- fail: end a failed refresh; the key cools, longer with each failure in a row, and waiters are notified.
--
-- KEYS[1]  record
-- ARGV[1]  token               number
-- ARGV[2]  nonce               8 bytes
-- ARGV[3]  cooling_us          µs      the pause, during which only a forced claim passes
-- ARGV[4]  kind                text    of the failure
-- ARGV[5]  attempts            number
-- ARGV[6]  retention_ms        ms
-- ARGV[7]  channel             text
-- ARGV[8]  longest_us          µs      the pause doubles with each failure in a row, up to this; 0: the failure is not
--                                      the key's fault and is not counted, and the pause is the first one
-- ARGV[9]  bookmarks           0|1|2   1: the graph did not reach the load's bookmarks; 2: it refused them
-- ARGV[10] why                 text    explanation for readers; '' for no more than the kind
--
-- returns  {status, pause_us, failures, failed_token}
--          status: 1 cooling, 0 the lease is lost
--          failures: in a row, with this one; failed_token: of the previous failed run, 0 if there is none or the step
--          is repeated
-- keeps    the entry: a stale value is served within its grace. The count survives runs and claims, even claims that
--          are taken back. A commit and an invalidation end it, and so does the end of a pause after as long again,
--          unless the failing refresh had been claimed by then.
--          I3: bookmarks of invalidations are removed only if the graph refused them, the claim had none of its own
--          that may have been at fault, and no invalidation has come since. After bookmarks at fault are removed,
--          claims without bookmarks pass the cooling
local now = clock_us()
local record = read_record(KEYS[1])
if record.state == 'cooling' and record.ended_by == ARGV[2] then
  return { 1, text(left_us(record, now)), record.failures, '0' }
end
if record.state ~= 'running' or text(record.token) ~= ARGV[1] or record.nonce ~= ARGV[2] then
  return { 0, '0', 0, '0' }
end
local pause_us, longest_us = tonumber(ARGV[3]), tonumber(ARGV[8])
-- Bookmarks of an invalidation keep a record, and its counts, for longer.
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
