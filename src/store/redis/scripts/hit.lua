-- Counts one request of a client, for an agent or to a public route.
--
-- KEYS: the meter. ARGV: limit, width in microseconds.
return enter(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), clock())
