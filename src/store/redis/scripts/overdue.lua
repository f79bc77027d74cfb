-- Notes in the journal that are older than a change of a key can take, the oldest first.
--
-- KEYS: the journal. ARGV: age in microseconds, how many to skip, how many at most.
local before = string.format('%.0f', clock() - tonumber(ARGV[1]))
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before, 'LIMIT', ARGV[2], ARGV[3])
