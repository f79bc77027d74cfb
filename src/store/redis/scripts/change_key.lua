-- Uses up the nonce and changes the agent's key. The replaced digest is noted until its entry elsewhere is gone.
--
-- KEYS: epoch, nonce, record, replaced digests. ARGV: the caller's time, ahead, retention, signed at (seconds), change,
-- digest.
local retention, signed_at, time = tonumber(ARGV[3]), tonumber(ARGV[4]), clock()
local refused, kept =
  refuse_nonce(KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), retention, signed_at, time)
if refused then
  return refused
end
local current = redis.call('GET', KEYS[3])
if ARGV[5] == 'issue' and current then
  return { KEY_EXISTS }
end
use_nonce(KEYS[2], signed_at, retention, kept, time)
if current then
  redis.call('SADD', KEYS[4], current)
end
if ARGV[5] == 'revoke' then
  redis.call('DEL', KEYS[3])
else
  redis.call('SREM', KEYS[4], ARGV[6])
  redis.call('SET', KEYS[3], ARGV[6])
end
return { DONE, redis.call('SMEMBERS', KEYS[4]) }
