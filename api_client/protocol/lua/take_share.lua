-- take_share: take a share for one load, if the budgets of its namespace and of its query both have room.
--
-- KEYS[1]  all_shares          the namespace's loads in progress, by when their shares end
-- KEYS[2]  all_pace            its rate, and the loads that wait for it
-- KEYS[3]  query_shares        the same for the query
-- KEYS[4]  query_pace
-- ARGV[1]  share               text    drawn for this load
-- ARGV[2]  urgency             text    miss, stale or early
-- ARGV[3]  holds_us            µs      until the share ends, unless it is renewed; the same for all
-- ARGV[4]  all_concurrency     number  of loads at once; 0: no bound
-- ARGV[5]  all_interval_us     µs      from one load to the next; 0: no bound
-- ARGV[6]  all_burst_us        µs      by which loads may be early
-- ARGV[7]  query_concurrency   number
-- ARGV[8]  query_interval_us   µs
-- ARGV[9]  query_burst_us      µs
--
-- returns  0 granted; otherwise µs after which it may be granted, as far as is known
-- keeps    both budgets are charged, or neither. No more live shares than loads at once; no more loads in t than
--          (t + burst) / interval + 1. A refused load goes before less urgent ones. A share that is taken again is
--          charged once
local now = clock_us()
local urgency, holds_us = ARGV[2], tonumber(ARGV[3])

-- In µs: the spacing of repeated requests, over all workers; the delay after which a load no longer counts as waiting;
-- and the longest pause until it asks again.
local SPACING = 2000
local LATE = 20000
local LONGEST = 250000

-- Forget shares whose worker is gone, and those from before the clock was set back.
local function sweep(shares)
  redis.call('ZREMRANGEBYSCORE', shares, '-inf', text(now))
  redis.call('ZREMRANGEBYSCORE', shares, '(' .. text(now + holds_us + TOLERATED), '+inf')
end

-- The time at which the next load is due by the rate alone. If it is farther off than loads can have moved it, the rate
-- has changed or the clock was set back, and the load is due now.
local function due_at(tat, interval_us, burst_us)
  local at = tonumber(tat or 0)
  if at > now + interval_us + burst_us then
    return now
  end
  return math.max(now, at)
end

-- True if a load is waiting that is to ask again at this time.
local function is_waiting(asks_at)
  local from_now = tonumber(asks_at or 0) - now
  return from_now > -LATE and from_now <= LONGEST
end

local function write(pace, field, at, interval_us, burst_us)
  redis.call('HSET', pace, field, text(at))
  keep_at_least(pace, math.ceil((interval_us + burst_us + LONGEST) / 1000))
end

-- µs until a budget may have room; 0 if it has room now.
local function wait_us(shares, pace, concurrency, interval_us, burst_us)
  local f = redis.call('HMGET', pace, 'tat', 'miss', 'stale', urgency)
  local ahead_us = due_at(f[1], interval_us, burst_us) - burst_us - now
  local is_full = concurrency > 0 and redis.call('ZCARD', shares) >= concurrency
  local yields = (urgency ~= 'miss' and is_waiting(f[2])) or (urgency == 'early' and is_waiting(f[3]))
  if ahead_us <= 0 and not is_full and not yields then
    return 0
  end
  local asks_at = math.min(math.max(tonumber(f[4] or 0), now, now + ahead_us) + SPACING, now + LONGEST)
  write(pace, urgency, asks_at, interval_us, burst_us)
  return math.max(ahead_us, asks_at - now)
end

-- Without a rate, leave alone that of another release, which counts its own loads.
local function charge(pace, interval_us, burst_us)
  if interval_us == 0 then
    return
  end
  local tat = redis.call('HMGET', pace, 'tat')[1]
  write(pace, 'tat', due_at(tat, interval_us, burst_us) + interval_us, interval_us, burst_us)
end

local all_concurrency, all_interval_us, all_burst_us = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local query_concurrency, query_interval_us, query_burst_us = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
sweep(KEYS[1])
sweep(KEYS[3])
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  local wait = math.max(wait_us(KEYS[1], KEYS[2], all_concurrency, all_interval_us, all_burst_us),
    wait_us(KEYS[3], KEYS[4], query_concurrency, query_interval_us, query_burst_us))
  if wait > 0 then
    return text(wait)
  end
  charge(KEYS[2], all_interval_us, all_burst_us)
  charge(KEYS[4], query_interval_us, query_burst_us)
end
hold_share(KEYS[1], ARGV[1], now, holds_us)
hold_share(KEYS[3], ARGV[1], now, holds_us)
return '0'
