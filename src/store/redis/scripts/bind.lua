-- Binds a shard to a chain where it is for none yet. Answers the chain that it is for.
--
-- KEYS: the binding. ARGV: the chain, as its text.
local known = redis.call('HMGET', KEYS[1], 'chain')[1]
if not known then
  redis.call('HSET', KEYS[1], 'chain', ARGV[1])
end
return known or ARGV[1]
