-- How a fixed window decides one request, see straight.lua.
--@ decide
local form, start, taken = 1, NOW, 0
if state then
  form = 0
  if #state >= #tag + 11 and sub(state, 1, #tag) == tag then form, start, taken = struct_unpack(FIXED, state, #tag + 1) end
  if form == 1 and NOW - start >= length then start, taken = NOW, 0 end
  if start == 0 then start = NOW end
end
usual = form == 1 and start <= NOW -- no ban, no refund, no clock that was set back
if usual then
  left = rate - taken
  if cost <= left then
    allowed, left = 1, left - cost
    local text = tag .. struct_pack(FIXED, 1, start, taken + cost)
    --@ set state
  end
  if cost > left then wait = start + length - NOW end
end
