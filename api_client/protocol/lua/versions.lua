-- versions: of which versions of a query entries can exist.
--
-- KEYS[1]  versions
--
-- returns  the versions, as text; those that nobody has swept yet among them
-- keeps    nothing is changed. What has been registered before is found, so whoever invalidates all that is returned
--          leaves no entry out
return redis.call('ZRANGE', KEYS[1], 0, -1)
