-- Nonces: one key for each that was used, which expires when no signature with it can be fresh any more.
--
-- Beside them, in the same slot, stands an epoch: the life of the server that holds the nonces, the timestamp from which
-- on signatures are taken, how far ahead timestamps may lie, and for how many seconds after its timestamp each nonce is
-- kept at least. The last two are the largest that any caller asked for: while settings are being changed, callers
-- differ, and nobody may take a nonce for unused because another caller kept it for a shorter time.

-- The life of this server. Redis makes a new replication id at each start, at each promotion, and for a first replica.
-- The number of evictions changes when a nonce may have been evicted.
local function life()
  local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  return id .. ':' .. string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)')
end

-- From which timestamp on signatures are taken, and for how many seconds after its timestamp a nonce is kept.
--
-- Begins a new epoch when nonces may have been lost, which is when the server is in another life or the epoch is gone,
-- and when a caller wants nonces kept for longer or timestamps further ahead. It refuses every signature that could have
-- been used before. `wall` is the caller's time: it judged how far ahead a timestamp lies.
local function epoch_of(key, wall, ahead, retention, time)
  local known = redis.call('HMGET', key, 'life', 'since', 'ahead', 'kept')
  local since, known_ahead, known_kept = tonumber(known[2] or 0), tonumber(known[3] or 0), tonumber(known[4] or 0)
  local current, kept = life(), retention - ahead
  if known[1] == current then
    if ahead <= known_ahead and kept <= known_kept then
      return since, known_kept
    end
    ahead, kept = math.max(ahead, known_ahead), math.max(kept, known_kept)
  end
  local now = math.max(math.floor(time / 1000000), wall)
  since = math.max(since, now + math.max(ahead, known_ahead) + 1)
  redis.call('HSET', key, 'life', current, 'since', string.format('%.0f', since), 'ahead', ahead, 'kept', kept)
  return since, kept
end

-- Why a nonce can't be used, or nil; then also for how many seconds after its timestamp it is kept.
local function refuse_nonce(epoch, nonce, wall, ahead, retention, signed_at, time)
  local since, kept = epoch_of(epoch, wall, ahead, retention, time)
  if signed_at < since then
    return { NONCE_FORGOTTEN, since, since * 1000000 - time }
  end
  -- Used as early as its timestamp allows, it would have expired by now.
  if time >= (signed_at + kept) * 1000000 then
    return { NONCE_FORGOTTEN, math.floor(time / 1000000), 1 }
  end
  if redis.call('EXISTS', nonce) == 1 then
    return { NONCE_USED }
  end
  return nil, kept
end

-- Remembers the nonce for the caller's retention, and for as long as the epoch says.
local function use_nonce(nonce, signed_at, retention, kept, time)
  local until_micros = math.max(time + retention * 1000000, (signed_at + kept) * 1000000)
  redis.call('SET', nonce, '', 'PX', string.format('%.0f', math.ceil((until_micros - time) / 1000)))
end
