-- tag_page: read the next members of a tag's index, for the walk of an invalidation.
--
-- KEYS[1]  index
-- KEYS[2]  state
-- ARGV[1]  number              number  of the invalidation
-- ARGV[2]  cursor              number  the score to go on from, with all before it invalidated; '' for the stored one
-- ARGV[3]  limit               number  of members
--
-- returns  alternating members and scores, in the order of scores; fewer than `limit` are the last
-- keeps    a walk that is taken over goes on from the start of its last page
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
