-- release_share: give the share of a load back to the budgets, after its end or if nothing was loaded.
--
-- KEYS[1]  all_shares
-- KEYS[2]  all_pace
-- KEYS[3]  query_shares
-- KEYS[4]  query_pace
-- ARGV[1]  share               text
-- ARGV[2]  all_refund_us       µs      the charge of taking it, if nothing was loaded; otherwise 0
-- ARGV[3]  query_refund_us     µs
--
-- returns  1 given back, 0 it had already ended
-- keeps    a refund is made once, and no larger than the charge
local function refund(pace, refund_us)
  local tat = redis.call('HMGET', pace, 'tat')[1]
  if tat then
    redis.call('HSET', pace, 'tat', text(tonumber(tat) - refund_us))
  end
end

redis.call('ZREM', KEYS[3], ARGV[1])
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
refund(KEYS[2], tonumber(ARGV[2]))
refund(KEYS[4], tonumber(ARGV[3]))
return 1
