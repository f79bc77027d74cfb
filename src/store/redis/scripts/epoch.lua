-- Begins a new epoch when the nonces may be others than the last process of Redis had: after a restart, a failover, or
-- when everything is gone. Every signature that could have been used before is refused from then on.
--
-- KEYS: epoch. ARGV: identity of this process, the caller's time, ahead (seconds).
if redis.call('HGET', KEYS[1], 'process') == ARGV[1] then
  return { DONE }
end
local now = math.max(math.floor(clock() / 1000000), tonumber(ARGV[2]))
local since = now + tonumber(ARGV[3]) + 1
since = math.max(since, tonumber(redis.call('HGET', KEYS[1], 'since') or 0))
redis.call('HSET', KEYS[1], 'process', ARGV[1], 'since', string.format('%.0f', since))
return { DONE }
