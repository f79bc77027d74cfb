-- Uses up the nonce and changes the agent's keys, as `held_keys.rs` says: its record, the new key's entry, signer and days, and those
-- of keys that are over. It answers the new key's end and name, and which keys are over.
--
-- KEYS: epoch, nonces, record, the new key's entry, its signer, its days. ARGV: the caller's time, ahead, retention, signed at
-- (seconds), nonce, change, name ('-': none), digest, the entry's value, the signer's address, the most keys, after how many seconds
-- the new key ends (0: never), its tenants ('-': all), for how many seconds the replaced one goes on, the most replaced ones; the
-- last one is Redis' time in microseconds after which nobody waits for the change.
local latest, now = tonumber(table.remove(ARGV)), redis.call('TIME')
if now[1] * 1000000 + now[2] > latest then
  return redis.error_reply('LATE nobody waits for this change any more')
end
local wall, signed_at, time = tonumber(ARGV[1]), tonumber(ARGV[4]), clock()
local refused =
  refuse_nonce(KEYS[1], KEYS[2], ARGV[5], wall, tonumber(ARGV[2]), tonumber(ARGV[3]), signed_at, time)
if refused then
  return refused
end

local record, seconds, verb, name = redis.call('GET', KEYS[3]), seconds_of(time), ARGV[6], ARGV[7]
local keys, current, is_there, is_named, gone = keys_of(record, seconds), 0, false, false, {}
for _, key in ipairs(keys) do
  current = current + (key.state == 'c' and 1 or 0)
end
if verb == 'rotate' and name == '-' and current == 1 then
  for _, key in ipairs(keys) do
    name = key.state == 'c' and key.name or name
  end
end
for _, key in ipairs(keys) do
  is_named = is_named or key.name == name
  is_there = is_there or (key.state == 'c' and key.name == name)
end
local most = tonumber(ARGV[11] or 0)
if verb == 'issue' and (is_there or current >= most) then
  return { KEY_EXISTS }
end
if verb == 'rotate' and most > 1 and not is_there and current > 0
  or verb == 'revoke' and name ~= '-' and not is_named and #keys > 0 then
  return { NO_SUCH_KEY }
end
use_nonce(KEYS[2], ARGV[5], wall, signed_at)

local replaced = 0
for _, key in ipairs(keys) do
  if verb == 'revoke' and (name == '-' or key.name == name) then
    key.state = 'gone'
  elseif verb == 'rotate' and (most == 1 or key.name == name) then
    local ends = seconds + tonumber(ARGV[14])
    key.state, key.ends = 'r', key.ends == 0 and ends or math.min(key.ends, ends)
    key.state = key.ends > seconds and 'r' or 'gone'
  end
  replaced = replaced + (key.state == 'r' and 1 or 0)
end
local too_many, lines, plain = verb == 'rotate' and replaced - tonumber(ARGV[15]) or 0, {}, nil
local function keep(key)
  plain = key.state == 'c' and key.ends == 0 and key.name == '-' and key.tenants == '-' and key.digest
  lines[#lines + 1] =
    string.format('%s %.0f %s %s %s - -\n', key.digest, key.ends, key.state, key.name, key.tenants)
  for _, kind in ipairs(key.ends > 0 and { 'd', 's', 't' } or {}) do
    -- A second later than the record has it end.
    redis.pcall('PEXPIRE', name_of(KEYS[3], kind, key.digest), string.format('%.0f', 1000 * (key.ends - seconds + 1)))
  end
end
local kept, made = {}, 0
for _, key in ipairs(keys) do
  if key.state == 'r' and too_many > 0 then
    key.state, too_many = 'gone', too_many - 1
  end
  if key.state ~= 'gone' then
    kept[key.digest] = true
    keep(key)
  end
end
if verb ~= 'revoke' then
  redis.call('SET', KEYS[4], ARGV[9])
  redis.call('SET', KEYS[5], ARGV[10])
  redis.call('SET', KEYS[6], math.floor(seconds / 86400))
  local after, digest = tonumber(ARGV[12]), hex_of(ARGV[8])
  made, kept[digest] = after > 0 and seconds + after or 0, true
  keep({ digest = digest, ends = made, state = 'c', name = name, tenants = ARGV[13] })
end
if #lines == 0 then
  redis.call('DEL', KEYS[3])
elseif #lines == 1 and plain then
  redis.call('SET', KEYS[3], (string.gsub(plain, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end)))
else
  redis.call('SET', KEYS[3], '2\n' .. table.concat(lines))
end
-- Those of the former record, also what had ended in it.
for _, key in ipairs(keys_of(record, 0)) do
  if not kept[key.digest] then
    -- A key that was made before keys had to fit has its entry in another slot of a cluster. Left behind, it opens nothing.
    for _, kind in ipairs({ 'd', 's', 't' }) do
      redis.pcall('DEL', name_of(KEYS[3], kind, key.digest))
    end
    gone[#gone + 1] = key.digest
  end
end
return { DONE, made, name, unpack(gone) }
