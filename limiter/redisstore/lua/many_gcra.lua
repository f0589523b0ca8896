-- Many limits of GCRA, see many_boxes.lua and plain_boxes.lua.
--@ begin
local LAYOUT, FRESH, STEP = GCRA, { NOW, NOW, 0 }, 5
--@ tables
local debts, before_them = {}, {}
--@ alone
its, form, a, b, c, d = struct_unpack(alone[l], raw)
--@ read
local before, debt = NOW, 0
if own then
  if a > NOW then return false end
  before, debt = b, c - (NOW - a) * rates[l] / lengths[l]
  if debt <= 0 then debt, before = 0, NOW end
end
debts[i], before_them[i], lefts[i] = debt, before, floor(mosts[l] - debt + TINY)
--@ wait
local function fits() return true end
local function wait(i, cost)
  local l = limit_of[i]
  return until_owed(debts[i], NOW, rates[l], lengths[l], mosts[l], cost)
end
--@ grant
local debt = debts[w] + cost
debts[w], lefts[w] = debt, floor(mosts[limit_of[w]] - debt + TINY)
--@ write
v1, v2, v3 = NOW, before_them[i], debts[i]
--@ take
local start = v[p + 1]
if start > NOW then return end
local debt = v[p + 3] - (NOW - start) * rates[l] / lengths[l]
if debt <= 0 then
  debt = 0
  v[p + 2] = NOW
end
debt = debt + cost
v[p + 1], v[p + 3] = NOW, debt
left = floor(mosts[l] - debt + TINY)
--@ reckon
wait = until_owed(debt, NOW, rates[l], lengths[l], mosts[l], cost)
--@ stands
local start = v[p + 1]
if start > NOW then return end
local debt = v[p + 3] - (NOW - start) * rates[l] / lengths[l]
if debt <= 0 then debt = 0 end
left = floor(mosts[l] - debt + TINY)
if cost > left then wait = until_owed(debt, NOW, rates[l], lengths[l], mosts[l], cost) end
