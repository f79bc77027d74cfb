-- Begins a new epoch when nonces may be missing: after a restart, a failover, or when everything is gone; and when the
-- caller wants nonces kept for longer, or lets timestamps lie further ahead, than whoever stored those that are there.
-- Every signature that could have been used before is refused from then on.
--
-- KEYS: epoch. ARGV: identity of this process, the caller's time, ahead, retention (seconds).
local ahead = tonumber(ARGV[3])
local kept = tonumber(ARGV[4]) - ahead
local known = redis.call('HMGET', KEYS[1], 'process', 'since', 'ahead', 'kept')
local known_ahead, known_kept = tonumber(known[3] or 0), tonumber(known[4] or 0)
local since = math.max(math.floor(clock() / 1000000), tonumber(ARGV[2])) + math.max(ahead, known_ahead) + 1
since = math.max(since, tonumber(known[2] or 0))
if known[1] == ARGV[1] and known[3] and known[4] then
  if ahead <= known_ahead and kept <= known_kept then
    return { DONE }
  end
  -- Others that want less go on in this epoch, so it is nothing less for anybody.
  ahead, kept = math.max(ahead, known_ahead), math.max(kept, known_kept)
end
local function whole(number)
  return string.format('%.0f', number)
end
redis.call('HSET', KEYS[1], 'process', ARGV[1], 'since', whole(since), 'ahead', whole(ahead), 'kept', whole(kept))
return { DONE }
