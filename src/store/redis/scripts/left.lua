-- How many requests a client has left for an agent, the agent's record, and Redis' time in seconds. Writes nothing.
--
-- KEYS: the meter, the agent's record. ARGV: limit, width in microseconds.
local limit, width, time = tonumber(ARGV[1]), tonumber(ARGV[2]), clock()
local newest = tonumber(redis.call('LINDEX', KEYS[1], -1) or 0)
if newest - time > width then
  -- As if the entries were brought back.
  time = newest
end
local length = redis.call('LLEN', KEYS[1])
local live = length - count_old(KEYS[1], length, time - width, 0, {})
return { math.max(limit - live, 0), redis.call('GET', KEYS[2]) or '', seconds_of(clock()) }
