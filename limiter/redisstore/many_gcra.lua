-- Many limits of GCRA.
local debts, before_them = {}, {}

local function read(i, l, raw, at)
  local form, start, before, debt = 1, NOW, NOW, 0
  if raw then
    form, start, before, debt = struct_unpack(GCRA, raw, at)
    debt = debt - (NOW - start) * rates[l] / lengths[l]
    if debt <= 0 then debt, before = 0, NOW end
  end
  debts[i], before_them[i], lefts[i] = debt, before, floor(mosts[l] - debt + TINY)
  return form == 1 and start <= NOW
end

local function wait(i, cost)
  local l = limit_of[i]
  return until_owed(debts[i], NOW, rates[l], lengths[l], mosts[l], cost)
end

local function grant(i, cost)
  debts[i] = debts[i] + cost
  lefts[i] = floor(mosts[limit_of[i]] - debts[i] + TINY)
end

local function write(i) return struct_pack(GCRA, 1, NOW, before_them[i], debts[i]), '', '' end
