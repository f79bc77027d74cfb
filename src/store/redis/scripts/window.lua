-- The exact sliding window: a list of accepted times in microseconds, the oldest first.
--
-- At most `limit` entries lie within any `width`. A refused request adds nothing. Each admission drops the entries that are
-- a width old, so that the list holds no others.

-- How many entries one command writes: Lua can't unpack any number.
local AT_ONCE = 1000

-- After a step of the clock by more than a width, an agent would be shut out until the clock has caught up. Nobody knows how
-- much time has really passed. So the newest entry becomes one of this moment, the others keep their distance to it, and
-- nobody waits for longer than a width.
local function bring_back(key, width, step)
  local times = redis.call('LRANGE', key, 0, -1)
  for place, entry in ipairs(times) do
    times[place] = string.format('%.0f', math.max(entry - step, 0))
  end
  redis.call('DEL', key)
  for first = 1, #times, AT_ONCE do
    redis.call('RPUSH', key, unpack(times, first, math.min(first + AT_ONCE - 1, #times)))
  end
  redis.call('PEXPIRE', key, math.ceil(2 * width / 1000))
end

-- How many of the first `length` entries are not younger than `before`. The caller has read `times` already, which begin
-- at the place `old` and have only old ones before them.
local function count_old(key, length, before, old, times)
  while true do
    for _, entry in ipairs(times) do
      if tonumber(entry) > before then
        return old
      end
      old = old + 1
    end
    if old >= length then
      return old
    end
    -- Twice as far each time, so that many old entries take few commands.
    times = redis.call('LRANGE', key, old, 2 * old + 3)
  end
end

-- Admits and records, or says after how many microseconds to come back. It counts with a time that is never before the
-- newest accepted one, wherever the clock was stepped.
local function enter(key, limit, width, time)
  local newest = tonumber(redis.call('LINDEX', key, -1) or 0)
  if newest - time > width then
    bring_back(key, width, newest - time)
    newest = time
  end
  local now = math.max(time, newest)
  -- The limit-th most recent entry and a few after it; fewer of them where the list is shorter than the limit. While the
  -- limit-th most recent is younger than a width, the window is full.
  local few = math.min(limit, 4)
  local times = redis.call('LRANGE', key, -limit, few - limit - 1)
  if #times == few and now - times[1] < width then
    return { LIMITED, times[1] + width - time }
  end
  local length = redis.call('RPUSH', key, string.format('%.0f', now))
  -- Entries before the limit-th most recent are there where the limit was larger. They are older still.
  local old = count_old(key, length - 1, now - width, math.max(length - 1 - limit, 0), times)
  if old > 0 then
    redis.call('LPOP', key, old)
  end
  -- Renewed once a width: two are enough for everything that is admitted until the clock enters the next one.
  if math.floor(now / width) ~= math.floor(newest / width) then
    redis.call('PEXPIRE', key, math.ceil(2 * width / 1000))
  end
  return { ADMITTED, limit - length + old }
end
