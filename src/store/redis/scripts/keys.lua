-- An agent's record: the digest of its one key (version 1), or from the second version on a line for each key, as
-- `domain/held_key.rs` writes it.

local function seconds_of(time)
  return math.floor(time / 1000000)
end

-- True if the record holds a key that has not ended.
local function holds(record, digest, time)
  if record == digest then
    return true
  end
  if not record or string.sub(record, 1, 2) ~= '2\n' or #record == 32 then
    return false
  end
  local hex = string.gsub(digest, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  local at = string.find(record, '\n' .. hex .. ' ', 1, true)
  local ends = at and tonumber(string.match(record, '^%d+', at + 66))
  return ends ~= nil and (ends == 0 or seconds_of(time) < ends)
end
