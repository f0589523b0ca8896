-- Many sliding windows of two counters.
local takens, before_them, numbers = {}, {}, {}

local function read(i, l, raw, at)
  local length = lengths[l]
  local form, number, start, taken, before = 1, floor(NOW / length), 0, 0, 0
  if raw then
    form, start, taken, before = struct_unpack(SLIDING, raw, at)
    if start ~= number then
      before = start == number - 1 and taken or 0
      taken = 0
    end
  end
  numbers[i], takens[i], before_them[i] = number, taken, before
  lefts[i] = rates[l] - used(number, taken, before, NOW, length)
  return form == 1 and start <= number
end

local function wait(i, cost)
  local l = limit_of[i]
  return until_used(numbers[i], takens[i], before_them[i], lengths[l], rates[l] - cost)
end
local function grant(i, cost) takens[i], lefts[i] = takens[i] + cost, lefts[i] - cost end
local function write(i) return struct_pack(SLIDING, 1, numbers[i], takens[i], before_them[i]), '', '' end
