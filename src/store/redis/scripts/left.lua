-- How many requests a client has left for an agent; writes nothing.
--
-- KEYS: the meter. ARGV: limit, width in microseconds.
return { ADMITTED, room(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), clock()) }
