-- tag_register: register an entry with a tag before its commit, and read the tag's invalidations.
--
-- KEYS[1]  index
-- KEYS[2]  state
-- ARGV[1]  member              bytes   query, version and digest
-- ARGV[2]  lives_ms            ms      after which neither the entry nor a late commit of it can exist
--
-- returns  {now_us, last, hard, bookmarks}: the largest numbers of any and of a hard invalidation (0: none), and lines
-- keeps    I3: a worker registers between load and commit. So an invalidation either finds the member, or was marked
--          before and is in the reply. A member is never forgotten before the time that any worker has set, and moves
--          only towards the end of the index, so a walk to the end misses none. At most ten expired ones are removed
local now = clock_us()
local failed = add_or_raise(KEYS[1], text(now + tonumber(ARGV[2]) * 1000), ARGV[1])
if failed then
  return failed
end
sweep_index(KEYS[1], now, 10)
local state = read_tag_state(KEYS[2])
local bookmarks, before = kept_bookmarks(state, now)
return { text(now), text(state.last), text(state.hard), before .. '\n' .. bookmarks }
