-- tag_finish: an invalidation of tags is done.
--
-- KEYS[1]  pending
-- ARGV[1]  invalidation        text    its whole description
--
-- returns  1, or 0 where it was not pending any more
-- keeps    it comes after the last page of every tag, and removes no other invalidation
return redis.call('ZREM', KEYS[1], ARGV[1])
