-- How GCRA decides one request, see straight.lua.
--@ decide
local form, start, before, debt = 1, NOW, NOW, 0
if state then
  form = 0
  if #state >= #tag + 21 and sub(state, 1, #tag) == tag then form, start, before, debt = struct_unpack(GCRA, state, #tag + 1) end
end
usual = form == 1 and start <= NOW -- no ban, no refund, no clock that was set back
if usual then
  debt = debt - (NOW - start) * rate / length
  if debt <= 0 then debt, before = 0, NOW end
  left = floor(most - debt + TINY)
  if cost <= left then
    allowed, debt = 1, debt + cost
    left = floor(most - debt + TINY)
    local text = tag .. struct_pack(GCRA, 1, NOW, before, debt)
    --@ set state
  end
  if cost > left then wait = until_owed(debt, NOW, rate, length, most, cost) end
end
