-- Admits on the strength of a nonce: unused, and room in the window. Only an admission uses it.
--
-- KEYS: epoch, nonces, window. ARGV: the caller's time, ahead, retention, signed at (seconds), nonce, limit, width in
-- microseconds.
local wall, signed_at, time = tonumber(ARGV[1]), tonumber(ARGV[4]), clock()
local refused =
  refuse_nonce(KEYS[1], KEYS[2], ARGV[5], wall, tonumber(ARGV[2]), tonumber(ARGV[3]), signed_at, time)
if refused then
  return refused
end
local answer = enter(KEYS[3], tonumber(ARGV[6]), tonumber(ARGV[7]), time)
if answer[1] == ADMITTED then
  use_nonce(KEYS[2], ARGV[5], wall, signed_at)
end
return answer
