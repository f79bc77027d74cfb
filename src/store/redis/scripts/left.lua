-- How many requests a client has left for an agent, or when there will be one; writes nothing.
--
-- KEYS: the meter. ARGV: limit, width in microseconds.
local limit, width, time = tonumber(ARGV[1]), tonumber(ARGV[2]), clock()
local left = room(KEYS[1], limit, width, time)
if left > 0 then
  return { ADMITTED, left }
end
local blocking = tonumber(redis.call('LINDEX', KEYS[1], -limit) or time)
return { LIMITED, math.max(math.min(blocking + width - time, width), 1) }
