-- Many windows of cooldowns, see many_boxes.lua.
--@ begin
local LAYOUT = HEAD

-- paused is pause of the limit l, which many requests of a call ask alike.
local known = {}
local function paused(l, level)
  local id = l * 65536 + level
  if not known[id] then known[id] = pause(steps[l], level) end
  return known[id]
end
--@ tables
local befores, newests, levels, counts, froms, adds = {}, {}, {}, {}, {}, {}
--@ read
  --@ own entries
if own and (newest > NOW or count >= PAUSES) then return false end
befores[i], newests[i], levels[i], counts[i], froms[i] = before, newest, taken, count, body
lefts[i] = (taken == 0 or newest + paused(l, taken) <= NOW) and 1 or 0
--@ wait
local function wait(i) return newests[i] + paused(limit_of[i], levels[i]) - NOW end
local function fits() return true end
--@ grant
adds[w] = packed(NOW - newests[w], 1, sub(requests, id, id + 7))
newests[w], levels[w], counts[w], lefts[w] = NOW, levels[w] + 1, counts[w] + 1, 0
--@ write
text = adds[i]
  --@ append entry
v1, v2, v3, v4 = befores[i], NOW, levels[i], counts[i]
--@ take
if count >= PAUSES or cost ~= 1 then return end
if taken > 0 and newest + paused(l, taken) > NOW then return refuse(from, n) end
left, wait = 0, paused(l, taken + 1)
--@ stands
left, wait = 1, taken > 0 and newest + paused(l, taken) - NOW or 0
if wait > 0 then left = 0 else wait = 0 end
--@ trim
if count == 0 or newest <= NOW - lengths[l] then -- all have come back
  before, newest, taken, count, body = NOW, NOW, 0, 0, last + 1
end
