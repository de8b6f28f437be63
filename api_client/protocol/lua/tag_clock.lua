-- tag_clock: the tag clock, as a refresh of a tagged query reads it before its load.
--
-- KEYS[1]  clock
--
-- returns  the number of the last tick; 0 where it is lost, so that every invalidation that is remembered counts as later
-- keeps    nothing is changed
return text(read_tag_clock(KEYS[1]))
