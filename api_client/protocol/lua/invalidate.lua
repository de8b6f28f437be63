-- invalidate: make everything read before now stale, or drop it.
--
-- KEYS[1]  entry
-- KEYS[2]  record
-- ARGV[1]  hard                0|1     1: drop the entry; 0: it is stale at once, and may be served within its grace
-- ARGV[2]  bookmarks           lines   that the next loads read after, for 10 to 20 minutes
-- ARGV[3]  bookmarks_limit     bytes
-- ARGV[4]  retention_ms        ms
-- ARGV[5]  channel             text
--
-- returns  the generation
-- keeps    I3: a run that began before has a token below the generation, and its commit is judged by that.
--          A queued claim stays (no load has begun); retrying and cooling end
local now = clock_us()
local entry, record = read_entry(KEYS[1]), read_record(KEYS[2])
local hard, retention_ms = ARGV[1] == '1', tonumber(ARGV[4])
local generation = draw(now, record, entry)

if hard then
  redis.call('DEL', KEYS[1])
elseif entry then
  redis.call('SETRANGE', KEYS[1], 28, struct.pack('>I8I8', generation, math.min(entry.soft_expiry, now)))
end

redis.call('HSET', KEYS[2], 'generation', text(generation), 'number', text(generation))
if ARGV[2] ~= '' then
  keep_bookmarks(KEYS[2], record, now, ARGV[2], tonumber(ARGV[3]))
end
if hard then
  redis.call('HSET', KEYS[2], 'hard', text(generation))
end
-- The change may have removed the cause of failures: if a run in progress fails, it is the first of a new row.
redis.call('HDEL', KEYS[2], 'failures', 'failures_until', 'attempts')
if record.state ~= 'queued' and record.state ~= 'running' then
  rest_invalidated(KEYS[2], record, now, retention_ms)
else
  keep_at_least(KEYS[2], math.max(retention_ms, bookmarks_left_ms(record, now)))
end
notify(ARGV[5], 'invalidated')
return text(generation)
