-- Many fixed windows.
local starts, takens = {}, {}

local function read(i, l, text)
  local form, start, taken = 1, NOW, 0
  if text then
    form, start, taken = struct_unpack(FIXED, text, #tags[l] + 1)
    if NOW - start >= lengths[l] then start, taken = NOW, 0 end
  end
  starts[i], takens[i], lefts[i] = start, taken, rates[l] - taken
  return form == 1 and start <= NOW
end

local function wait(i) return starts[i] + lengths[limit_of[i]] - NOW end
local function grant(i, cost) takens[i], lefts[i] = takens[i] + cost, lefts[i] - cost end
local function write(i) return struct_pack(FIXED, 1, starts[i], takens[i]) end
