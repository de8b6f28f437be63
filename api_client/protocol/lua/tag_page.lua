-- tag_page: the next members of a tag's index, for the walk of an invalidation.
--
-- KEYS[1]  index
-- KEYS[2]  state
-- ARGV[1]  number              number  of the invalidation
-- ARGV[2]  cursor              number  the score to go on from: all before it are invalidated; '' where it was left
-- ARGV[3]  limit               number  of members
--
-- returns  members and their scores in turn, in the order of their scores; fewer than `limit`: there is no other
-- keeps    a walk that is taken over goes on where it was left, on its last page from the beginning
local field, cursor = 'at:' .. ARGV[1], ARGV[2]
if cursor == '' then
  cursor = redis.call('HMGET', KEYS[2], field)[1] or '-inf'
else
  redis.call('HSET', KEYS[2], field, cursor)
end
local members = redis.call('ZRANGEBYSCORE', KEYS[1], cursor, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
if #members < 2 * tonumber(ARGV[3]) then
  redis.call('HDEL', KEYS[2], field)
end
return members
