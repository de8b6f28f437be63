-- tag_finish: remove a pending invalidation of tags that is done.
--
-- KEYS[1]  pending
-- ARGV[1]  invalidation        text    its whole description
--
-- returns  1, or 0 if it was no longer pending
-- keeps    it comes after the last page of every tag, and removes no other invalidation
return redis.call('ZREM', KEYS[1], ARGV[1])
