-- Notes in the journal that are older than a change of a key can take.
--
-- KEYS: the journal. ARGV: age in microseconds, how many at most.
local before = string.format('%.0f', clock() - tonumber(ARGV[1]))
return { DONE, redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before, 'LIMIT', 0, ARGV[2]) }
