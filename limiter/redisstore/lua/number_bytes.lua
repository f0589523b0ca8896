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
