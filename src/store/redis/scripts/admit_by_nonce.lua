-- Admits on the strength of a nonce: unused, and room in the window. Only an admission uses it.
--
-- KEYS: epoch, nonce, window. ARGV: identity, signed at, retention, ahead (seconds), limit, width in microseconds.
local signed_at, retention, ahead = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = clock()
local refused, kept = refuse_nonce(KEYS[1], KEYS[2], ARGV[1], signed_at, retention, ahead, time)
if refused then
  return refused
end
local answer = enter(KEYS[3], tonumber(ARGV[5]), tonumber(ARGV[6]), time)
if answer[1] == ADMITTED then
  use_nonce(KEYS[2], signed_at, retention, kept, time)
end
return answer
