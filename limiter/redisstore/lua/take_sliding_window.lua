-- How a sliding window of two counters decides one request, see straight.lua.
--@ decide
local number, form, start, taken, before = floor(NOW / length), 1, 0, 0, 0
if state then
  form = 0
  if #state >= #tag + 15 and sub(state, 1, #tag) == tag then form, start, taken, before = struct_unpack(SLIDING, state, #tag + 1) end
  if form == 1 and start ~= number then
    before = start == number - 1 and taken or 0
    taken = 0
  end
end
usual = form == 1 and start <= number -- no ban, no refund, no clock that was set back
if usual then
  start = number
  left = rate - used(start, taken, before, NOW, length)
  if cost <= left then
    allowed, left, taken = 1, left - cost, taken + cost
    local text = tag .. struct_pack(SLIDING, 1, start, taken, before)
    --@ set state
  end
  if cost > left then wait = until_used(start, taken, before, length, rate - cost) end
end
