-- Many windows of sliding logs, see many_boxes.lua.
--@ begin
local LAYOUT = HEAD

-- await is how long it takes until `short` more of the entries from at to last, of which
-- the first is after `time`, have come back; what this call took comes back last.
local function await(raw, time, at, last, short, length)
  while raw and at <= last do
    local after, n, next = entry(raw, at)
    time, short, at = time + after, short - n, next
    if short <= 0 then return time + length - NOW end
  end
  return length
end
--@ tables
local HOT = 4
local befores, newests, takens, counts, froms, given, times, adds = {}, {}, {}, {}, {}, {}, {}, {}
local made_after, made_cost, made_id, made -- the entry that was made last

-- Of many that will be merged only the first few are kept one by one.
local function merges(i) return times[i] > HOT and rates[limit_of[i]] > FULL end
--@ read
  --@ own entries
if own and (newest > NOW or count >= FULL) then return false end
befores[i], newests[i], takens[i], counts[i], froms[i], lefts[i] = before, newest, taken, count, body, rates[l] - taken
given[i], times[i] = 0, 0
--@ wait
local function wait(i, cost)
  return await(raws[i], befores[i], froms[i], lasts[i], cost - lefts[i], lengths[limit_of[i]])
end

-- fits is false if what was granted cannot be written here.
local function fits(n)
  for i = 1, n do
    if counts[i] + times[i] > FULL and not merges(i) then return false end
  end
  return true
end
--@ grant
local n = times[w] + 1
lefts[w], given[w], times[w] = lefts[w] - cost, given[w] + cost, n
if n == 1 then
  local after = NOW - newests[w]
  if made_after ~= after or made_cost ~= cost or made_id ~= id then
    made_after, made_cost, made_id = after, cost, id
    local id = sub(requests, id, id + 7)
    --@ pack entry
  end
  adds[w] = made
elseif n <= HOT or rates[limit_of[w]] <= FULL then
  adds[w] = adds[w] .. packed(0, cost, sub(requests, id, id + 7))
end
--@ write
local n = times[i]
text = adds[i]
if n > HOT and merges(i) then text, n = packed(NOW - newests[i], given[i]), 1 end
  --@ append entry
v1, v2, v3, v4 = befores[i], NOW, takens[i] + given[i], counts[i] + n
--@ take
if count >= FULL then return end
left = rates[l] - taken - cost
if left < 0 then return refuse(from, n) end
wait = cost > left and await(raw, before, body, last, cost - left, lengths[l]) or 0
--@ stands
left = rates[l] - taken
wait = cost > left and await(raw, before, body, last, cost - left, lengths[l]) or 0
--@ trim
local old = NOW - lengths[l]
if newest <= old then -- all have come back
  before, taken, count, body = newest, 0, 0, last + 1
end
while before <= old and body <= last do
  local kind, s, t, few = byte(raw, body, body + 3)
  local after, behind = 0, body + 12
  if kind == 18 then after = s + t * 256 else after, few, behind = entry(raw, body) end
  if before + after > old then break end
  before, taken, count, body = before + after, taken - few, count - 1, behind
end
