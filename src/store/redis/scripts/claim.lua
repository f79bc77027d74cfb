-- Binds a shard to the caller's chain, where it is for none yet and the caller says so. Where it is for that chain, begins
-- a new epoch of its nonces when they may have been lost, and takes out those that are over.
--
-- Answers the chain that it is for, or nil, and for the caller's from which timestamp on signatures are taken there.
--
-- KEYS: binding, epoch, nonces. ARGV: the caller's time, ahead, retention (seconds), its chain, 'bind' or 'look'.
local known = redis.call('HMGET', KEYS[1], 'chain')[1]
if not known and ARGV[5] == 'bind' then
  redis.call('HSET', KEYS[1], 'chain', ARGV[4])
  known = ARGV[4]
end
if known ~= ARGV[4] then
  return { known }
end
local wall, time = tonumber(ARGV[1]), clock()
local since, kept = epoch_of(KEYS[2], KEYS[3], wall, tonumber(ARGV[2]), tonumber(ARGV[3]), time)
forget(KEYS[3], wall, kept, time)
return { known, since }
