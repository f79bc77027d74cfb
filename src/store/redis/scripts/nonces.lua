-- Nonces: one key for each that was used, which goes when no signature with it can be fresh any more.
--
-- Beside them, in the same slot, stands an epoch: which process of Redis the nonces are in, and before which timestamp
-- signatures may carry a nonce that was lost. A process that is not the one of the epoch may have lost some.

-- Says why a nonce can't be used, or nothing.
local function refuse_nonce(epoch, nonce, identity, signed_at, retention, ahead, time)
  local known = redis.call('HMGET', epoch, 'process', 'since')
  if known[1] ~= identity then
    return { STRANGE }
  end
  if signed_at < tonumber(known[2]) then
    return { NONCE_USED }
  end
  -- Used as early as its timestamp allows, it would be forgotten by now.
  if time >= (signed_at - ahead + retention) * 1000000 then
    return { NONCE_USED }
  end
  if redis.call('EXISTS', nonce) == 1 then
    return { NONCE_USED }
  end
  return nil
end

-- Remembers the nonce for the retention, counted from no earlier than its timestamp allows.
local function use_nonce(nonce, signed_at, retention, ahead, time)
  local used_at = math.max(time, (signed_at - ahead) * 1000000)
  local lifetime = math.ceil((used_at + retention * 1000000 - time) / 1000)
  redis.call('SET', nonce, '', 'PX', string.format('%.0f', lifetime))
end
