-- Redis's functions and Lua's by short names, and numbers as text and as bytes.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub, format = string.byte, string.char, string.sub, string.format

-- mget is MGET, to which a key of another type looks like none.
local function mget(keys) return call('MGET', unpack(keys)) end

-- int writes a whole number as text. The type that %d takes has 64 bits on most machines; it
-- needs a sixth of the time of %.0f there.
local int_format
local function int(n)
  if not int_format then int_format = format('%d', 1099511627776) == '1099511627776' and '%d' or '%.0f' end
  return format(int_format, n)
end

-- number reads an unsigned number of `width` bytes at i, lowest byte first; little writes one.
local function number(text, i, width)
  local n = 0
  for k = i + width - 1, i, -1 do n = n * 256 + byte(text, k) end
  return n
end

local function little(n, width)
  local out = {}
  for i = 1, width do
    out[i] = char(n % 256)
    n = floor(n / 256)
  end
  return table.concat(out)
end

-- permits_of reads the count at the end of a member of a sorted set. One of others with the highest
-- bit set was a negative number, and counts as nothing.
local function permits_of(member)
  local a, b, c, d = byte(member, -4, -1)
  if not d or d > 127 then return 0 end
  return a + b * 256 + c * 65536 + d * 16777216
end

-- read_grants reads the grants of a report that are younger than `horizon`, oldest first, of `size`
-- bytes each: ID (8), permits (4), age in ms (6); and the value (8) where values are counted.
local function read_grants(text, size, horizon)
  local list = {}
  for i = 1, #text, size do
    local id, n, age = sub(text, i, i + 7), number(text, i + 8, 4), number(text, i + 12, 6)
    if age < horizon then list[#list + 1] = { id = id, n = n, at = NOW - age, value = sub(text, i + 18, i + 25) } end
  end
  return list
end
