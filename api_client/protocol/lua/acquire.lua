-- acquire: a worker takes the lease and draws the token of its run.
--
-- KEYS[1]  entry
-- KEYS[2]  record
-- ARGV[1]  nonce               8 bytes drawn for this run, in the worker's memory only
-- ARGV[2]  claim_number        number  of the claim whose message this is
-- ARGV[3]  ticket              text    of the retry whose message this is; '' for none
-- ARGV[4]  lease_us            µs
-- ARGV[5]  limit_us            µs      no renewal goes beyond it: by then the run's process has ended
-- ARGV[6]  retention_ms        ms
-- ARGV[7]  by                  text    the worker, for people
-- ARGV[8]  in_place            0|1     1: within another task or load, and may end with it; not counted as an attempt
--
-- returns  {status, state, left_us, token, now_us, claimed_at_us, generation, bookmarks, entry_header, attempts,
--           has_overtaken}
--          status: 1 acquired, 2 already fresh, 3 held (in this state, for left_us)
--          bookmarks: lines, perhaps with empty ones and duplicates
--          entry_header: the entry without its payload, for its δ state; '' without an entry
--          attempts: failed attempts of this refresh, including runs whose leases expired, unless they were in place
--          has_overtaken: the last attempt was such a run, and nobody has counted it
-- keeps    I1: the token is larger than any drawn before, and overwrites that of the lease's last owner
local now = clock_us()
local entry, record = read_entry(KEYS[1]), read_record(KEYS[2])
local nonce, ticket = ARGV[1], ARGV[3]

local header = ''
if entry then
  header = redis.call('GETRANGE', KEYS[1], 0, entry.header_length - 1)
end

if record.state == 'running' and record.nonce == nonce then
  return { 1, 'running', text(left_us(record, now)), text(record.token), text(now), text(record.claimed_at),
    text(record.generation), bookmarks_to_read_after(record, now), header, text(record.attempts),
    record.overtook == nonce }
end

-- A claim with this nonce is this very run, handed back: a repeated acquire that comes late has no owner any more.
local free = not record.state or is_over(record, now) or (record.state == 'queued' and record.claim ~= nonce)
  or record.state == 'invalidated'
  or (record.state == 'retrying' and ticket ~= '' and record.ticket == ticket)
if not free then
  return { 3, record.state, text(left_us(record, now)), '0', text(now), '0', '0', '', '', '0', false }
end

-- A claim in the record counts like the message's own, since a late message may serve it. So does an invalidation,
-- and if its record is lost, the entry still has its number.
local wanted = math.max(tonumber(ARGV[2]), record.generation)
if record.state == 'queued' then
  wanted = math.max(wanted, record.claim_number)
end
if entry and entry.token > math.max(wanted, entry.generation) then
  return { 2, record.state or 'idle', '0', text(entry.token), text(now), '0', '0', '', '', '0', false }
end

local token = draw(now, record, entry)
-- Every end of a run removes its token from the record; a claim over a lapsed lease leaves it, for a late commit.
-- A token with this nonce is this very run's, whose first reply was lost.
local has_overtaken = record.token > 0 and record.nonce ~= nonce and not is_in_place(record)
local lease_us, limit_us = tonumber(ARGV[4]), tonumber(ARGV[5])
local claimed_at = now
if (record.state == 'queued' or record.state == 'retrying') and record.claimed_at > 0 then
  -- The wait must not become negative if the clock was set back.
  claimed_at = math.min(record.claimed_at, now)
end
redis.call('HSET', KEYS[2], 'state', 'running', 'since', text(now), 'until', text(now + math.min(lease_us, limit_us)),
  'number', text(token), 'token', text(token), 'nonce', nonce, 'limit', text(now + limit_us),
  'claimed_at', text(claimed_at),
  -- At least 1, because 0 means "none" when a run is handed back.
  'claim_number', text(math.max(tonumber(ARGV[2]), record.claim_number, 1)), 'by', ARGV[7])
redis.call('HDEL', KEYS[2], 'claim', 'ticket', 'kind', 'why', 'attempts', 'ended_by', 'cools_only_bookmarks', 'in_place',
  'overtook')
if ARGV[8] == '1' then
  redis.call('HSET', KEYS[2], 'in_place', nonce)
end
if has_overtaken then
  redis.call('HSET', KEYS[2], 'overtook', nonce)
end
local attempts = failed_attempts(record)
if attempts > 0 then
  redis.call('HSET', KEYS[2], 'attempts', text(attempts))
end
keep_record(KEYS[2], record, now, math.ceil(limit_us / 1000) + tonumber(ARGV[6]))
return { 1, 'running', text(math.min(lease_us, limit_us)), text(token), text(now), text(claimed_at),
  text(record.generation), bookmarks_to_read_after(record, now), header, text(attempts), has_overtaken }
