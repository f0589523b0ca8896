-- Many fixed windows.
local begins, takens = {}, {}

local function read(i, l, raw, at)
  local form, start, taken = 1, NOW, 0
  if raw then
    form, start, taken = struct_unpack(FIXED, raw, at)
    if NOW - start >= lengths[l] then start, taken = NOW, 0 end
  end
  begins[i], takens[i], lefts[i] = start, taken, rates[l] - taken
  return form == 1 and start <= NOW
end

local function wait(i) return begins[i] + lengths[limit_of[i]] - NOW end
local function grant(i, cost) takens[i], lefts[i] = takens[i] + cost, lefts[i] - cost end
local function write(i) return struct_pack(FIXED, 1, begins[i], takens[i]), '', '' end
