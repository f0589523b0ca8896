-- Many windows of sliding logs.
local HOT = 4
local befores, newests, takens, counts, froms, given, times, adds = {}, {}, {}, {}, {}, {}, {}, {}
local FEW = '<BI2Bc8' -- most entries

local function read(i, l, raw, at, last)
  local form, before, newest, taken, count = 1, NOW, NOW, 0, 0
  if raw then
    form, before, newest, taken, count, at = struct_unpack(HEAD, raw, at)
    local old = NOW - lengths[l]
    if newest <= old then -- all have come back
      before, taken, count, at = newest, 0, 0, last + 1
    end
    while form == 1 and before <= old and at <= last do
      local after, n, next = entry(raw, at)
      if before + after > old then break end
      before, taken, count, at = before + after, taken - n, count - 1, next
    end
  end
  befores[i], newests[i], takens[i], counts[i], froms[i], lefts[i] = before, newest, taken, count, at, rates[l] - taken
  given[i], times[i] = 0, 0
  return form == 1 and newest <= NOW and count < FULL
end

-- wait is how long until cost permits are left of the i-th window. Those that this
-- call took are the last to come back.
local function wait(i, cost)
  local raw, length = raws[i], lengths[limit_of[i]]
  local short, time, at, last = cost - lefts[i], befores[i], froms[i], lasts[i]
  while raw and at <= last do
    local after, n, next = entry(raw, at)
    time, short, at = time + after, short - n, next
    if short <= 0 then return time + length - NOW end
  end
  return length
end

local function grant(i, cost, id)
  local n = times[i] + 1
  lefts[i], given[i], times[i] = lefts[i] - cost, given[i] + cost, n
  if n == 1 then
    local after = NOW - newests[i]
    if after < 65536 and cost < 256 then
      adds[i] = struct_pack(FEW, 18, after, cost, sub(requests, id, id + 7))
    else
      adds[i] = packed(after, cost, sub(requests, id, id + 7))
    end
  elseif n <= HOT or rates[limit_of[i]] <= FULL then
    adds[i] = adds[i] .. packed(0, cost, sub(requests, id, id + 7))
  end
end

-- Of many that will be merged only the first few are kept one by one.
local function merges(i) return times[i] > HOT and rates[limit_of[i]] > FULL end

local function fits(n)
  for i = 1, n do
    if counts[i] + times[i] > FULL and not merges(i) then return false end
  end
  return true
end

local function write(i)
  local add, n, body = adds[i], times[i], ''
  if merges(i) then add, n = packed(NOW - newests[i], given[i]), 1 end
  if raws[i] then body = sub(raws[i], froms[i], lasts[i]) end
  return struct_pack(HEAD, 1, befores[i], NOW, takens[i] + given[i], counts[i] + n), body, add
end
