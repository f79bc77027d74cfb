-- Uses up the nonce and makes a change of an agent's keys, which `held_keys.rs` has worked out from the record: nothing is done where
-- another change was made since the record was read.
--
-- KEYS: epoch, nonces, record, and whatever belongs to keys that come, end or go. ARGV: the caller's time, ahead, retention, signed at
-- (seconds), nonce, the record as it was read, the new one ('refused': look at the nonce alone), and for each of the further KEYS what
-- becomes of it: 's' and its value, 'e' and its milliseconds, or 'd'. The last one is Redis' time in microseconds after which nobody
-- waits for the change.
local latest, now = tonumber(table.remove(ARGV)), redis.call('TIME')
if now[1] * 1000000 + now[2] > latest then
  return redis.error_reply('LATE nobody waits for this change any more')
end
local wall, signed_at, record = tonumber(ARGV[1]), tonumber(ARGV[4]), ARGV[7]
local refused =
  refuse_nonce(KEYS[1], KEYS[2], ARGV[5], wall, tonumber(ARGV[2]), tonumber(ARGV[3]), signed_at, clock())
if refused then
  return refused
end
if (redis.call('GET', KEYS[3]) or '') ~= ARGV[6] then
  return { CHANGED }
end
if record == 'refused' then
  return { UNUSED }
end
use_nonce(KEYS[2], ARGV[5], wall, signed_at)
if record == '' then
  redis.call('DEL', KEYS[3])
else
  redis.call('SET', KEYS[3], record)
end
for place = 4, #KEYS do
  local what, value = string.sub(ARGV[place + 4], 1, 1), string.sub(ARGV[place + 4], 2)
  if what == 's' then
    redis.call('SET', KEYS[place], value)
  elseif what == 'e' then
    redis.call('PEXPIRE', KEYS[place], value)
  else
    redis.call('DEL', KEYS[place])
  end
end
return { DONE }
