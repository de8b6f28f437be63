-- renew_share: extend a share of the budgets for a load in progress.
--
-- KEYS[1]  all_shares
-- KEYS[2]  query_shares
-- ARGV[1]  share               text
-- ARGV[2]  holds_us            µs      from now
--
-- returns  µs for which the share holds; 0: it has ended
-- keeps    a share that was given back, or has ended and was forgotten, is not revived, since nobody would end it
local now = clock_us()
local holds_us = tonumber(ARGV[2])

if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return '0'
end
hold_share(KEYS[1], ARGV[1], now, holds_us)
hold_share(KEYS[2], ARGV[1], now, holds_us)
return text(holds_us)
