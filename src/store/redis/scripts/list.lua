-- An agent's record, Redis' time in seconds, and the days of the record's keys that have not ended.
--
-- KEYS: the record.
local record, seconds, answer = redis.call('GET', KEYS[1]) or '', seconds_of(clock()), {}
for place, key in ipairs(keys_of(record, seconds)) do
  -- A key that was made before keys had to fit is elsewhere, and has none.
  local days = redis.pcall('GET', name_of(KEYS[1], 't', key.digest))
  answer[place] = type(days) == 'string' and days or ''
end
return { record, seconds, unpack(answer) }
