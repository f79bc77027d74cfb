-- An agent's record: the digest of its one key (version 1), or from the second version on a line for each key, as
-- `domain/held_key.rs` writes it.

local function hex_of(digest)
  return (string.gsub(digest, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

local function seconds_of(time)
  return math.floor(time / 1000000)
end

-- The name of a digest's entry (d), signer (s) or days (t), as `names.rs` writes it, beside that of a record.
local function name_of(record, kind, digest)
  return string.format('%s{%x}%s:%s', string.match(record, '^[^{]*'), tonumber(string.sub(digest, 1, 4), 16) % 1024, kind, digest)
end

-- The keys of a record that have not ended, the oldest first.
local function keys_of(record, seconds)
  local keys = {}
  if record and #record == 32 then
    keys[1] = { digest = hex_of(record), ends = 0, state = 'c', name = '-', tenants = '-' }
  elseif record and string.sub(record, 1, 2) == '2\n' then
    for digest, ends, state, name, tenants in string.gmatch(record, '(%x+) (%d+) ([cr]) (%S+) (%S+) %S+ %S+\n') do
      local key = { digest = digest, ends = tonumber(ends), state = state, name = name, tenants = tenants }
      if key.ends == 0 or seconds < key.ends then
        keys[#keys + 1] = key
      end
    end
  end
  return keys
end

-- True if the record holds a key that has not ended.
local function holds(record, digest, time)
  if record == digest then
    return true
  end
  if not record or string.sub(record, 1, 2) ~= '2\n' or #record == 32 then
    return false
  end
  local at = string.find(record, '\n' .. hex_of(digest) .. ' ', 1, true)
  local ends = at and tonumber(string.match(record, '^%d+', at + 66))
  return ends ~= nil and (ends == 0 or seconds_of(time) < ends)
end
