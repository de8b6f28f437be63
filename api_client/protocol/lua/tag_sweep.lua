-- tag_sweep: forget what nobody needs of a tag.
--
-- KEYS[1]  index
-- KEYS[2]  state
-- ARGV[1]  limit               number  of members
--
-- returns  how many members were removed: fewer than `limit` once all that may be forgotten is gone
-- keeps    a member goes when its time has passed, and the state when the runs are over that may have begun before its last
--          mark. Their keys have no expiry, so that no eviction of such keys takes them
local now = clock_us()
if now - read_tag_state(KEYS[2]).marked >= TAG_STATE_KEPT then
  redis.call('DEL', KEYS[2])
end
return sweep_index(KEYS[1], now, tonumber(ARGV[1]))
