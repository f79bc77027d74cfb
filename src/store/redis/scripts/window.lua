-- The exact sliding window: a list of accepted times in microseconds, the oldest first.
--
-- At most `limit` entries lie within any `width`. Whoever is refused adds nothing. Entries that are a width old are
-- dropped when something is added, so that the list holds what counts and no more.

-- How many entries are written by one command: what Lua can unpack has an end.
local AT_ONCE = 1000

-- After a step of the clock by more than a width, waiting for the clock to catch up would shut an agent out for as long
-- as the step. How much time has really passed nobody knows; so the newest entry becomes one of this moment, the others
-- keep their distance to it, and nobody waits for longer than a width.
local function bring_back(key, width, step)
  local times = redis.call('LRANGE', key, 0, -1)
  for place, entry in ipairs(times) do
    times[place] = string.format('%.0f', math.max(tonumber(entry) - step, 0))
  end
  redis.call('DEL', key)
  for first = 1, #times, AT_ONCE do
    redis.call('RPUSH', key, unpack(times, first, math.min(first + AT_ONCE - 1, #times)))
  end
  redis.call('PEXPIRE', key, math.ceil(width / 1000))
end

-- The newest accepted time, or 0.
local function newest_of(key)
  return tonumber(redis.call('LINDEX', key, -1) or 0)
end

-- How many entries at the head are not younger than `before`: doubling steps from the head, then halving ones.
local function count_old(key, length, before)
  local function is_old(count)
    return tonumber(redis.call('LINDEX', key, count - 1)) <= before
  end
  local low, high = 0, 1
  while high <= length and is_old(high) do
    low, high = high, high * 2
  end
  high = math.min(high, length + 1)
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if is_old(middle) then low = middle else high = middle end
  end
  return low
end

-- Drops entries that are not younger than `before`. Nearly always there are none.
local function trim(key, before)
  local oldest = redis.call('LINDEX', key, 0)
  if oldest and tonumber(oldest) <= before then
    redis.call('LTRIM', key, count_old(key, redis.call('LLEN', key), before), -1)
  end
end

-- Admits and records, or says after how many microseconds to come back. It counts with a time that is never before the
-- newest accepted one, wherever the clock was stepped.
local function enter(key, limit, width, time)
  local newest = newest_of(key)
  if newest - time > width then
    bring_back(key, width, newest - time)
    newest = time
  end
  local now = math.max(time, newest)
  -- The limit-th most recent: while it is younger than a width, the window is full.
  local blocking = redis.call('LINDEX', key, -limit)
  if blocking and now - tonumber(blocking) < width then
    return { LIMITED, tonumber(blocking) + width - time }
  end
  trim(key, now - width)
  local length = redis.call('RPUSH', key, string.format('%.0f', now))
  redis.call('PEXPIRE', key, math.ceil((now - time + width) / 1000))
  return { ADMITTED, limit - length }
end

-- How many more would be admitted; writes nothing.
local function room(key, limit, width, time)
  local length = redis.call('LLEN', key)
  local live = length - count_old(key, length, math.max(time, newest_of(key)) - width)
  return math.max(limit - live, 0)
end
