-- The part shared by all scripts, prepended to each of them. No step of its own.
-- Offsets (one-based here) and the magic are those of api_client/protocol/entry.py, and frozen forever.

-- 2^53, beyond which Lua numbers are not exact, so a larger one in Redis is garbage.
local LARGEST = 9007199254740992

-- Tolerated lag of Redis' clock behind a stamp of its own, in µs. Clocks are corrected by fractions of a second all
-- the time, and the clock of a replica that becomes the master is a little off; neither may end a lease.
local TOLERATED = 1000000

-- Format a number for Redis and callers; tostring() would give 1.7952431951235e+15.
local function text(number)
  return string.format('%.0f', number)
end

-- Bookmarks of invalidations are kept for at least this long, in µs, and at most twice as long. Two lists, for periods
-- of this length, make a deadline for each bookmark needless.
local BOOKMARKS_KEPT = 600000000

-- A tag's state is kept for this long after its last mark, in µs: longer than bookmarks, and than any run may take.
local TAG_STATE_KEPT = 7200000000

-- Redis' own time in microseconds; no script uses a caller's clock.
local function clock_us()
  local now = redis.call('TIME')
  return now[1] * 1000000 + now[2]
end

-- The frozen fields of the entry, or nil if there is no valid one (garbage, another type).
local function read_entry(key)
  local head = redis.pcall('GETRANGE', key, 0, 51)
  if type(head) ~= 'string' or #head < 52 or string.sub(head, 1, 2) ~= '\199X' then
    return nil
  end
  local token, generation, soft_expiry = struct.unpack('>I8I8I8', head, 21)
  if token < 0 or token >= LARGEST or generation < 0 or generation >= LARGEST then
    return nil
  end
  return { token = token, generation = generation, soft_expiry = soft_expiry, nonce = string.sub(head, 45, 52),
    header_length = struct.unpack('>I2', head, 7) }
end

-- The lease record; its state is nil if there is none (idle).
local function read_record(key)
  local f = redis.call('HMGET', key, 'state', 'until', 'number', 'claim', 'claim_number', 'claimed_at', 'token',
    'nonce', 'limit', 'ticket', 'generation', 'hard', 'bookmarks', 'kind', 'attempts', 'ended_by', 'failures', 'failed_token',
    'since', 'bookmarks_since', 'bookmarks_before', 'claim_bookmarks', 'cools_only_bookmarks', 'in_place', 'why',
    'failures_until', 'overtook')
  return {
    state = f[1] or nil, deadline = tonumber(f[2] or 0), number = tonumber(f[3] or 0),
    claim = f[4] or '', claim_number = tonumber(f[5] or 0), claimed_at = tonumber(f[6] or 0),
    token = tonumber(f[7] or 0), nonce = f[8] or '', limit = tonumber(f[9] or 0), ticket = f[10] or '',
    generation = tonumber(f[11] or 0), hard = tonumber(f[12] or 0), bookmarks = f[13] or '',
    kind = f[14] or '', attempts = tonumber(f[15] or 0), ended_by = f[16] or '',
    failures = tonumber(f[17] or 0), failed_token = tonumber(f[18] or 0),
    since = tonumber(f[19] or 0), bookmarks_since = tonumber(f[20] or 0), bookmarks_before = f[21],
    claim_bookmarks = f[22] or '', cools_only_bookmarks = f[23], in_place = f[24], why = f[25] or '',
    failures_until = tonumber(f[26] or LARGEST), overtook = f[27],
  }
end

-- True if a stamp lies so far in the future that Redis' clock must have been set back.
local function is_ahead(stamp, now)
  return now < stamp - TOLERATED
end

-- True if the deadline has passed. `since` is the time when it was set. A clock behind `since` was set back by an unknown
-- amount, by which the deadline is too far away; it then counts as passed, and a run that lives on is fenced by its
-- token. A record of an earlier release has no `since`, only a deadline.
local function is_over(record, now)
  return record.deadline <= now or is_ahead(record.since, now)
end

-- µs until the deadline, never more than it was set for.
local function left_us(record, now)
  if is_over(record, now) then
    return 0
  end
  return math.min(record.deadline - now, record.deadline - record.since)
end

-- True if the record's run loads within another task or load of its process. It ends with that one, whose limits are no
-- fault of the key.
local function is_in_place(record)
  return record.in_place == record.nonce
end

-- The number of failed attempts of this refresh when its next run is claimed or begins. A run whose lease expired is one
-- of them, unless it was in place: its process is gone or was paused, and nothing else counts it. After a failed refresh
-- the count starts anew.
local function failed_attempts(record)
  if record.state == 'cooling' then
    return 0
  end
  return record.attempts + (record.state == 'running' and not is_in_place(record) and 1 or 0)
end

-- A number larger than any before it for this key, even after the clock was set back.
local function draw(now, record, entry)
  local number = math.max(now, record.number + 1)
  if entry then
    number = math.max(number, entry.token + 1, entry.generation + 1)
  end
  return number
end

-- Add bookmarks (lines) to the record's, dropping the oldest beyond the limit. No loop over a user's input.
local function merge_bookmarks(old, new, limit)
  if string.find('\n' .. old .. '\n', '\n' .. new .. '\n', 1, true) then
    return old
  end
  local merged = old == '' and new or old .. '\n' .. new
  if #merged > limit then
    local cut = string.find(merged, '\n', #merged - limit, true)
    merged = cut and string.sub(merged, cut + 1) or new
  end
  return merged
end

-- The bookmarks of invalidations (lines) of this period and of the one before, and the start of this period.
local function kept_bookmarks(record, now)
  local since = record.bookmarks_since
  if now - since < BOOKMARKS_KEPT then
    return record.bookmarks, record.bookmarks_before, since
  elseif now - since < 2 * BOOKMARKS_KEPT then
    return '', record.bookmarks, since + BOOKMARKS_KEPT
  end
  return '', '', now
end

-- Store an invalidation's bookmarks in a hash: a lease record or a tag's state.
local function keep_bookmarks(key, record, now, new, limit)
  local bookmarks, before, since = kept_bookmarks(record, now)
  record.bookmarks, record.bookmarks_before = merge_bookmarks(bookmarks, new, limit), before
  record.bookmarks_since = since
  redis.call('HSET', key, 'bookmarks', record.bookmarks, 'bookmarks_before', before, 'bookmarks_since', text(since))
end

-- The bookmarks (lines) that a load reads after: those of invalidations, then those of its claim.
local function bookmarks_to_read_after(record, now)
  local bookmarks, before = kept_bookmarks(record, now)
  return before .. '\n' .. bookmarks .. '\n' .. record.claim_bookmarks
end

-- The time in ms for which loads still read after the bookmarks of invalidations; negative if there are none.
local function bookmarks_left_ms(record, now)
  return (record.bookmarks_since + 2 * BOOKMARKS_KEPT - now) / 1000
end

-- Make a key live at least `life_ms` from now.
local function keep_at_least(key, life_ms)
  if redis.call('PTTL', key) < life_ms then
    redis.call('PEXPIRE', key, text(life_ms))
  end
end

-- Make a record live `life_ms` from now, or as long as its bookmarks count if that is longer.
local function keep_record(key, record, now, life_ms)
  redis.call('PEXPIRE', key, text(math.max(life_ms, bookmarks_left_ms(record, now))))
end

-- End claim and run, with this state.
local function end_claim(key, state)
  redis.call('HSET', key, 'state', state, 'until', '0')
  redis.call('HDEL', key, 'since', 'claim', 'token', 'nonce', 'limit', 'ticket', 'kind', 'why', 'by',
    'claim_bookmarks', 'cools_only_bookmarks')
end

-- End claim and run, but keep what an invalidation has left for the next acquire.
local function rest_invalidated(key, record, now, retention_ms)
  end_claim(key, 'invalidated')
  keep_record(key, record, now, retention_ms)
end

-- Add a member to a sorted set or raise its score, replacing a key of another type. Returns an error of Redis, or false.
local function add_or_raise(key, score, member)
  local added = redis.pcall('ZADD', key, 'GT', score, member)
  if type(added) == 'table' and string.find(added.err, 'WRONGTYPE', 1, true) then
    redis.call('DEL', key)
    added = redis.pcall('ZADD', key, score, member)
  end
  return type(added) == 'table' and added
end

-- The number of the tag clock; 0 if it is lost or garbage.
local function read_tag_clock(key)
  local number = tonumber(redis.pcall('GET', key)) or 0
  return number < LARGEST and math.max(number, 0) or 0
end

-- A tag's state: its last invalidations and their bookmarks.
local function read_tag_state(key)
  local f = redis.call('HMGET', key, 'last', 'hard', 'marked', 'bookmarks', 'bookmarks_before', 'bookmarks_since')
  return { last = tonumber(f[1] or 0), hard = tonumber(f[2] or 0), marked = tonumber(f[3] or 0), bookmarks = f[4],
    bookmarks_before = f[5], bookmarks_since = tonumber(f[6] or 0) }
end

-- Remove at most `limit` members whose time has passed; returns their number.
local function sweep_index(key, now, limit)
  local passed = #redis.call('ZRANGEBYSCORE', key, '-inf', text(now), 'LIMIT', 0, limit)
  if passed > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, passed - 1)
  end
  return passed
end

-- Notify waiters. It is only a hint: without permission to publish the step is done nevertheless, and waiters poll.
local function notify(channel, what)
  redis.pcall('PUBLISH', channel, what)
end

-- Count a load among those in progress until its share ends. All shares last equally long, so the latest ends last.
local function hold_share(shares, share, now, holds_us)
  redis.call('ZADD', shares, text(now + holds_us), share)
  redis.call('PEXPIRE', shares, text(math.ceil(holds_us / 1000)))
end
