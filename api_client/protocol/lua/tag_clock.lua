-- tag_clock: read the tag clock, for a refresh of a tagged query before its load.
--
-- KEYS[1]  clock
--
-- returns  the number of the last tick; 0 if it is lost, so that every remembered invalidation counts as later
-- keeps    nothing is changed
return text(read_tag_clock(KEYS[1]))
