-- Admits on the strength of a key: still the agent's current one, and room in the window.
--
-- KEYS: the agent's record, its window. ARGV: digest, limit, width in microseconds.
local time = clock()
if not holds(redis.call('GET', KEYS[1]), ARGV[1], time) then
  return { KEY_REVOKED }
end
return enter(KEYS[2], tonumber(ARGV[2]), tonumber(ARGV[3]), time)
