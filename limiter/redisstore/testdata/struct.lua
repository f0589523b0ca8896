-- struct for a Lua that has none: of Redis's, as much as the scripts use: c0 is as long as the number before it says. All lowest
-- byte first, without alignment; numbers that are not whole as text of 24 bytes.
local struct = {}

local function each(format, visit)
  for option, width in string.gmatch(format, '([BIdc])(%d*)') do
    if option == 'B' then width = 1 elseif option == 'd' then width = 24 else width = tonumber(width) end
    visit(option, width)
  end
end

function struct.pack(format, ...)
  local out, values, i = {}, { ... }, 0
  each(format, function(option, width)
    i = i + 1
    local v = values[i]
    if option == 'c' then
      out[#out + 1] = string.sub(v, 1, width == 0 and #v or width)
    elseif option == 'd' then
      out[#out + 1] = string.format('%-24s', string.format('%.17g', v))
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
      v = tonumber((string.gsub(string.sub(text, at, at + width - 1), ' ', '')))
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
