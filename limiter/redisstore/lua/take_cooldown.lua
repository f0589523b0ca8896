-- How a cooldown decides one request, see straight.lua.
--@ decide
  --@ unpack entries
if form == 1 and newest <= NOW - length then taken, count = 0, 0 end -- all have come back
if taken > 0 then wait = newest + pause(step, taken) - NOW end
-- No ban, no clock that was set back, no entry too many.
usual = form == 1 and newest <= NOW and (wait > 0 or count < PAUSES)
if usual and wait <= 0 then
  local text, id = nil, sub(requests, from + 2, from + 9)
  if count == 0 then
    text = tag .. struct_pack(ONE, 3, NOW, 16, 1, id)
  else
    text = tag .. struct_pack(HEAD, 1, before, NOW, taken + 1, count + 1) .. sub(state, at) .. packed(NOW - newest, 1, id)
  end
  allowed, wait = 1, pause(step, taken + 1)
  --@ set state
end
