-- Notes that the key of an agent is about to change, so that somebody tidies up if the one who does it can't. Answers the
-- note's name, which no other attempt has: twins must not strike each other's notes.
--
-- KEYS: the journal. ARGV: what the name begins with.
local time = string.format('%.0f', clock())
local note = ARGV[1] .. ':' .. time
while redis.call('ZADD', KEYS[1], 'NX', time, note) == 0 do
  note = note .. '+'
end
return { DONE, { note } }
