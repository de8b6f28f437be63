-- tag_register: make an entry that is about to be committed known to a tag, and look whether the tag was invalidated.
--
-- KEYS[1]  index
-- KEYS[2]  state
-- ARGV[1]  member              bytes   query, version and digest
-- ARGV[2]  lives_ms            ms      after which neither the entry nor a late commit of it can be there
--
-- returns  {now_us, last, hard, bookmarks}: the largest numbers of any and of a hard invalidation (0: none), and lines
-- keeps    I3: a worker registers between load and commit. So an invalidation either finds the member, or was marked
--          before, and is in the reply. A member is never forgotten sooner than any worker has said; it moves only
--          towards the end of the index, so a walk to the end passes none by. At most ten that are past are removed
local now = clock_us()
local failed = add_or_raise(KEYS[1], text(now + tonumber(ARGV[2]) * 1000), ARGV[1])
if failed then
  return failed
end
sweep_index(KEYS[1], now, 10)
local state = read_tag_state(KEYS[2])
local bookmarks, before = kept_bookmarks(state, now)
return { text(now), text(state.last), text(state.hard), before .. '\n' .. bookmarks }
