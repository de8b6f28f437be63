-- tag_mark: mark a tag with an invalidation, which a load that began before it then sees when it registers.
--
-- KEYS[1]  state
-- ARGV[1]  number              number  of the invalidation's tick
-- ARGV[2]  hard                0|1
-- ARGV[3]  bookmarks           lines   that the next loads read after, for 10 to 20 minutes
-- ARGV[4]  bookmarks_limit     bytes
--
-- returns  the largest number of the tag's marks
-- keeps    I3: a state's numbers only grow, whatever the order of marks. A repetition changes nothing
local now = clock_us()
local state, number = read_tag_state(KEYS[1]), tonumber(ARGV[1])
local last = math.max(state.last, number)
redis.call('HSET', KEYS[1], 'last', text(last), 'marked', text(now))
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[1], 'hard', text(math.max(state.hard, number)))
end
if ARGV[3] ~= '' then
  keep_bookmarks(KEYS[1], state, now, ARGV[3], tonumber(ARGV[4]))
end
return text(last)
