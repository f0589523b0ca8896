-- How a cooldown decides one request, see straight.lua.
--@ decide
local form, before, newest, taken, count, body = 1, NOW, NOW, 0, 0, 1
if state then
  form = 0
  if sub(state, 1, #tag) == tag then
    if #state == #tag + ONE_SIZE and byte(state, #tag + 1) == 3 then
      form, before, newest, taken, count, body = 1, one_of(state, #tag + 1)
    elseif #state >= #tag + 19 then
      form, before, newest, taken, count, body = struct_unpack(HEAD, state, #tag + 1)
    end
  end
  if form == 1 and newest <= NOW - length then taken, count = 0, 0 end -- all have come back
end
if taken > 0 then wait = newest + pause(step, taken) - NOW end
-- No ban, no clock that was set back, no entry too many.
usual = form == 1 and newest <= NOW and (wait > 0 or count < PAUSES)
if usual and wait <= 0 then
  local text, id = nil, sub(requests, from + 2, from + 9)
  if count == 0 then
    text = tag .. struct_pack(ONE, 3, NOW, 16, 1, id)
  else
    text = tag .. struct_pack(HEAD, 1, before, NOW, taken + 1, count + 1) .. sub(state, body) .. packed(NOW - newest, 1, id)
  end
  allowed, wait = 1, pause(step, taken + 1)
  if state then
    call('SET', key, text, 'PX', ttl)
  else -- what is of another type looks like nothing in an MGET
    usual = call('SET', key, text, 'PX', ttl, 'NX')
  end
end
