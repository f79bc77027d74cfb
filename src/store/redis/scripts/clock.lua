-- Redis' own time in microseconds. It stands still while a script runs.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
