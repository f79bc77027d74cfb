-- Uses up the nonce and changes the agent's key: its record, the new key's entry and signer, and those of the replaced one,
-- which it answers.
--
-- KEYS: epoch, nonces, record, the new key's entry, its signer. ARGV: the caller's time, ahead, retention, signed at
-- (seconds), nonce, change, digest, the entry's value, the signer's address; the last one is Redis' time in microseconds
-- after which nobody waits for the change.
local latest, now = tonumber(table.remove(ARGV)), redis.call('TIME')
if now[1] * 1000000 + now[2] > latest then
  return redis.error_reply('LATE nobody waits for this change any more')
end
local wall, signed_at = tonumber(ARGV[1]), tonumber(ARGV[4])
local refused =
  refuse_nonce(KEYS[1], KEYS[2], ARGV[5], wall, tonumber(ARGV[2]), tonumber(ARGV[3]), signed_at, clock())
if refused then
  return refused
end

-- The name of a digest's entry (d) or signer (s), as `names.rs` writes it.
local function name_of(kind, digest)
  local high, low = string.byte(digest, 1, 2)
  local hex = string.gsub(digest, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  return string.format('%s{%x}%s:%s', string.match(KEYS[3], '^[^{]*'), (high * 256 + low) % 1024, kind, hex)
end

local current = redis.call('GET', KEYS[3])
if ARGV[6] == 'issue' and current then
  return { KEY_EXISTS }
end
use_nonce(KEYS[2], ARGV[5], wall, signed_at)
if ARGV[6] == 'revoke' then
  redis.call('DEL', KEYS[3])
else
  redis.call('SET', KEYS[4], ARGV[8])
  redis.call('SET', KEYS[5], ARGV[9])
  redis.call('SET', KEYS[3], ARGV[7])
end
if current and current ~= ARGV[7] then
  -- A key that was made before keys had to fit has its entry in another slot of a cluster. Left behind, it opens nothing.
  redis.pcall('DEL', name_of('d', current), name_of('s', current))
  return { DONE, current }
end
return { DONE }
