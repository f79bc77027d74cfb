-- Notes that the key of an agent is about to change, so that a replica finishes the change if this one dies. Answers the
-- note, which no other attempt has: twins must not remove each other's notes.
--
-- KEYS: the journal. ARGV: how the note begins.
local time = string.format('%.0f', clock())
local note = ARGV[1] .. ':' .. time
while redis.call('ZADD', KEYS[1], 'NX', time, note) == 0 do
  note = note .. '+'
end
return note
