-- Admits on the strength of a nonce: unused, and room in the window. Only an admission uses it.
--
-- KEYS: epoch, nonce, window. ARGV: the caller's time, ahead, retention, signed at (seconds), limit, width in
-- microseconds.
local retention, signed_at, time = tonumber(ARGV[3]), tonumber(ARGV[4]), clock()
local refused, kept =
  refuse_nonce(KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), retention, signed_at, time)
if refused then
  return refused
end
local answer = enter(KEYS[3], tonumber(ARGV[5]), tonumber(ARGV[6]), time)
if answer[1] == ADMITTED then
  use_nonce(KEYS[2], signed_at, retention, kept, time)
end
return answer
