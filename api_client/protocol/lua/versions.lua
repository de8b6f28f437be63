-- versions: the versions of a query of which entries can exist.
--
-- KEYS[1]  versions
--
-- returns  what is registered and not forgotten yet, as text
-- keeps    nothing is changed. What has been registered before is found, so an invalidation of all that is returned
--          leaves no entry out
return redis.call('ZRANGE', KEYS[1], '(' .. text(clock_us()), '+inf', 'BYSCORE')
