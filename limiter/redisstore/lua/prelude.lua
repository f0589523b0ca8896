-- Redis's functions and Lua's by short names, and numbers as text and as bytes.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub, format = string.byte, string.char, string.sub, string.format

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
