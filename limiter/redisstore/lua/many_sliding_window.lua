-- Many sliding windows of two counters, see many_boxes.lua and plain_boxes.lua.
--@ begin
local LAYOUT, FRESH, STEP = SLIDING, { 0, 0, 0 }, 5
local current = {} -- of each limit the number of the window in which this is
--@ tables
local takens, before_them, numbers = {}, {}, {}
--@ alone
its, form, a, b, c, d = struct_unpack(alone[l], raw)
--@ read
local length, taken, before = lengths[l], 0, 0
local number = floor(NOW / length)
if own then
  if a > number then return false end
  if a == number then
    taken, before = b, c
  elseif a == number - 1 then
    before = b
  end
end
numbers[i], takens[i], before_them[i] = number, taken, before
lefts[i] = rates[l] - used(number, taken, before, NOW, length)
--@ wait
local function fits() return true end
local function wait(i, cost)
  local l = limit_of[i]
  return until_used(numbers[i], takens[i], before_them[i], lengths[l], rates[l] - cost)
end
--@ grant
takens[w], lefts[w] = takens[w] + cost, lefts[w] - cost
--@ write
v1, v2, v3 = numbers[i], takens[i], before_them[i]
--@ take
  --@ counted
taken = taken + cost
v[p + 1], v[p + 2], v[p + 3] = number, taken, before
left = rates[l] - taken - faded
--@ reckon
wait = until_used(number, taken, before, length, rates[l] - cost)
--@ stands
  --@ counted
left = rates[l] - taken - faded
if cost > left then wait = until_used(number, taken, before, length, rates[l] - cost) end
--@ counted
local length, start, taken, before = lengths[l], v[p + 1], v[p + 2], v[p + 3]
local number = current[l]
if not number then
  number = floor(NOW / length)
  current[l] = number
end
if start ~= number then
  if start > number then return end
  taken, before = 0, start == number - 1 and taken or 0
end
local faded = 0 -- as used reckons it
if before > 0 then faded = math.ceil(before * ((number * length + length - NOW) / length)) end
