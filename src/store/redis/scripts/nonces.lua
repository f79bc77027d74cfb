-- Nonces: one key for each that was used, which goes when no signature with it can be fresh any more.
--
-- Beside them, in the same slot, stands an epoch: which process of Redis the nonces are in, before which timestamp
-- signatures may carry a nonce that was lost, how far ahead timestamps may lie, and for how many seconds after its
-- timestamp each nonce of the epoch is kept at least. A process that is not the one of the epoch may have lost some. The
-- last two are the largest that any caller wants: callers differ while settings are changed, and nobody must take a
-- nonce for unused because somebody else kept it for a shorter time.

-- Says why a nonce can't be used, or nothing; then also for how many seconds after its timestamp nonces are kept.
local function refuse_nonce(epoch, nonce, identity, signed_at, retention, ahead, time)
  local known = redis.call('HMGET', epoch, 'process', 'since', 'ahead', 'kept')
  if known[1] ~= identity or not known[3] or not known[4] then
    return { STRANGE }
  end
  local kept = tonumber(known[4])
  if tonumber(known[3]) < ahead or kept < retention - ahead then
    return { STRANGE }
  end
  if signed_at < tonumber(known[2]) then
    return { NONCE_USED }
  end
  -- Used as early as its timestamp allows, it would be forgotten by now.
  if time >= (signed_at + kept) * 1000000 then
    return { NONCE_USED }
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
