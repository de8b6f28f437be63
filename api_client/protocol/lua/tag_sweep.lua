-- tag_sweep: remove a tag's expired members, and its state if expired.
--
-- KEYS[1]  index
-- KEYS[2]  state
-- ARGV[1]  limit               number  of members
--
-- returns  the number of removed members, which is less than `limit` once no other may be removed
-- keeps    a member goes when its time has passed, and the state when all runs that may have begun before its last mark
--          are over. Their keys have no expiry, so that an eviction of expiring keys spares them
local now = clock_us()
if now - read_tag_state(KEYS[2]).marked >= TAG_STATE_KEPT then
  redis.call('DEL', KEYS[2])
end
return sweep_index(KEYS[1], now, tonumber(ARGV[1]))
