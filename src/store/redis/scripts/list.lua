-- An agent's record, and Redis' time in seconds.
--
-- KEYS: the record.
return { redis.call('GET', KEYS[1]) or '', seconds_of(clock()) }
