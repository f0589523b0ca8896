-- struct for a Lua that has none: of Redis's, as much as the scripts use. Lowest byte first,
-- without alignment; d is of a number that is not negative.
local struct = {}

local function each(format, visit)
  for option, width in string.gmatch(format, '([BIdc])(%d*)') do
    if option == 'B' then width = 1 elseif option == 'd' then width = 8 else width = tonumber(width) end
    visit(option, width)
  end
end

-- double writes a number as IEEE 754 does in 8 bytes; undouble reads it.
local function double(v)
  if v == 0 then return string.rep(string.char(0), 8) end
  local fraction, exponent = math.frexp(v)
  local out, rest = {}, (fraction * 2 - 1) * 2 ^ 52
  for i = 1, 6 do
    out[i] = string.char(rest % 256)
    rest = math.floor(rest / 256)
  end
  exponent = exponent + 1022
  return table.concat(out) .. string.char(rest + exponent % 16 * 16, math.floor(exponent / 16))
end

local function undouble(text)
  local fraction, low, high = 0, string.byte(text, 7, 8)
  if low + high == 0 then return 0 end
  for i = 6, 1, -1 do fraction = fraction * 256 + string.byte(text, i) end
  fraction = fraction + low % 16 * 2 ^ 48
  return math.ldexp(1 + fraction / 2 ^ 52, high * 16 + math.floor(low / 16) - 1023)
end

function struct.pack(format, ...)
  local out, values, i = {}, { ... }, 0
  each(format, function(option, width)
    i = i + 1
    local v = values[i]
    if option == 'c' then
      out[#out + 1] = string.sub(v, 1, width == 0 and #v or width)
    elseif option == 'd' then
      out[#out + 1] = double(v)
    else
      for _ = 1, width do
        out[#out + 1] = string.char(v % 256)
        v = math.floor(v / 256)
      end
    end
  end)
  return table.concat(out)
end

function struct.unpack(format, text, at)
  local out = {}
  at = at or 1
  each(format, function(option, width)
    local v
    if option == 'c' then
      if width == 0 then width = table.remove(out) end
      v = string.sub(text, at, at + width - 1)
    elseif option == 'd' then
      v = undouble(string.sub(text, at, at + width - 1))
    else
      v = 0
      for k = at + width - 1, at, -1 do v = v * 256 + string.byte(text, k) end
    end
    out[#out + 1] = v
    at = at + width
  end)
  out[#out + 1] = at
  return unpack(out)
end
