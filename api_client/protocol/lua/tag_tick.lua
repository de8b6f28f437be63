-- tag_tick: draw the number of an invalidation of tags.
--
-- KEYS[1]  clock
-- ARGV[1]  at_least            number  of a tag's state, if the clock was behind it; otherwise 0
--
-- returns  the number
-- keeps    I3: a load that read this number, or a larger one, began after this step. Numbers grow even if the last one
--          is lost, since Redis' clock goes on. A repetition draws another number
local number = math.max(clock_us(), read_tag_clock(KEYS[1]) + 1, tonumber(ARGV[1]))
redis.call('SET', KEYS[1], text(number))
return text(number)
