-- Notes that the key of an agent is about to change, so that somebody tidies up if the one who does it can't.
--
-- KEYS: the journal. ARGV: the note.
redis.call('ZADD', KEYS[1], string.format('%.0f', clock()), ARGV[1])
return { DONE }
