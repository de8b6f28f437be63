-- versions: read the versions of a query whose entries can exist.
--
-- KEYS[1]  versions
--
-- returns  the registered members that are not forgotten yet, as text
-- keeps    nothing is changed. All earlier registrations are found, so an invalidation of all returned versions leaves
--          out no entry
return redis.call('ZRANGE', KEYS[1], '(' .. text(clock_us()), '+inf', 'BYSCORE')
