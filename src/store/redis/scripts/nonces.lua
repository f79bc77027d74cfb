-- Nonces: a sorted set of those that were used, by the time of their use or their timestamp, whichever is later.
--
-- None expires. A step takes out those that are over, but the newest of them. So the oldest one says how far back nonces
-- were forgotten, and no signature from up to then is taken: whatever was used is in the set or older than all of it,
-- wherever Redis' clock or a caller's is stepped.
--
-- Beside them, in the same slot, stands an epoch: the life of the server that holds the nonces, the timestamp from which
-- on signatures are taken, how far ahead timestamps may lie, and for how many seconds nonces are kept. The last two are
-- the largest that any caller asked for.

-- How many nonces one step takes out.
local FORGOTTEN_MAX = 1000

-- The life of this server. Redis makes a new replication id at each start, at each promotion, and for a first replica.
-- The number of evictions changes when a nonce may have been evicted.
local function life()
  local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  return id .. ':' .. string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)')
end

-- From which timestamp on signatures are taken, and for how many seconds a nonce is kept.
--
-- Begins a new epoch when nonces may have been lost, which is when the server is in another life, or epoch or nonces are
-- gone, and when a caller wants nonces kept for longer or timestamps further ahead. It refuses every signature that could
-- have been used before. `wall` is the caller's time: it judged how far ahead a timestamp lies.
local function epoch_of(epoch, nonces, wall, ahead, kept, time)
  local known = redis.call('HMGET', epoch, 'life', 'since', 'ahead', 'kept')
  local since, known_ahead, known_kept = tonumber(known[2] or 0), tonumber(known[3] or 0), tonumber(known[4] or 0)
  local current = life()
  if known[1] == current and redis.call('EXISTS', nonces) == 1 then
    if ahead <= known_ahead and kept <= known_kept then
      return since, known_kept
    end
    ahead, kept = math.max(ahead, known_ahead), math.max(kept, known_kept)
  end
  local now = math.max(math.floor(time / 1000000), wall)
  since = math.max(since, now + math.max(ahead, known_ahead) + 1)
  redis.call('ZADD', nonces, 'NX', string.format('%.0f', since - 1), '')
  redis.call('HSET', epoch, 'life', current, 'since', string.format('%.0f', since), 'ahead', ahead, 'kept', kept)
  return since, kept
end

-- Takes out nonces that are over by both clocks, but the newest of them. Answers the time of the oldest one.
local function forget(nonces, wall, kept, time)
  local before = math.min(math.floor(time / 1000000), wall) - kept
  local over = redis.call('ZCOUNT', nonces, '-inf', string.format('(%.0f', before))
  if over > 1 then
    redis.call('ZREMRANGEBYRANK', nonces, 0, math.min(over - 1, FORGOTTEN_MAX) - 1)
  end
  return tonumber(redis.call('ZRANGE', nonces, 0, 0, 'WITHSCORES')[2])
end

-- Why a nonce can't be used, or nil.
local function refuse_nonce(epoch, nonces, nonce, wall, ahead, retention, signed_at, time)
  local since, kept = epoch_of(epoch, nonces, wall, ahead, retention, time)
  since = math.max(since, forget(nonces, wall, kept, time) + 1)
  if signed_at < since then
    return { NONCE_FORGOTTEN, since, since * 1000000 - time }
  end
  if redis.call('ZSCORE', nonces, nonce) then
    return { NONCE_USED }
  end
end

local function use_nonce(nonces, nonce, wall, signed_at)
  redis.call('ZADD', nonces, string.format('%.0f', math.max(wall, signed_at)), nonce)
end
