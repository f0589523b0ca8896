-- Many fixed windows, see many_boxes.lua and plain_boxes.lua.
--@ begin
local LAYOUT, FRESH, STEP = FIXED, { NOW, 0 }, 4
--@ tables
local begins, takens = {}, {}
--@ alone
its, form, a, b, c, d = struct_unpack(alone[l], raw)
--@ read
local start, taken = NOW, 0
if own and NOW - a < lengths[l] then start, taken = a, b end
if start > NOW then return false end
begins[i], takens[i], lefts[i] = start, taken, rates[l] - taken
--@ wait
local function fits() return true end
local function wait(i) return begins[i] + lengths[limit_of[i]] - NOW end
--@ grant
takens[w], lefts[w] = takens[w] + cost, lefts[w] - cost
--@ write
v1, v2 = begins[i], takens[i]
--@ take
local start, taken = v[p + 1], v[p + 2]
if start > NOW then return end
if NOW - start >= lengths[l] then
  start, taken = NOW, 0
  v[p + 1] = NOW
end
taken = taken + cost
v[p + 2] = taken
left = rates[l] - taken
--@ reckon
wait = start + lengths[l] - NOW
--@ stands
local start, taken = v[p + 1], v[p + 2]
if start > NOW then return end
if NOW - start >= lengths[l] then taken = 0 end
left = rates[l] - taken
if cost > left then wait = start + lengths[l] - NOW end
