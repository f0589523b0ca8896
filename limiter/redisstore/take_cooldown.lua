-- take_cooldown is take for requests of one claim each, every one on a window of its
-- own: straight on, see take_sliding_log.lua.
-- KEYS   state of each window
-- ARGV   limits and windows, see limits.lua and list_windows; then all requests in one string, see
--        decide
-- reply  as that of take
-- The whole script is one step for everybody else.
local struct_pack, struct_unpack = struct.pack, struct.unpack
local got, reply, r, from, one = call('MGET', unpack(KEYS)), { NOW }, 1, 1, nil

for i = 1, #KEYS do
  local l, state = byte(of, 3 * i - 2), got[i]
  local tag, form, before, newest, taken, count, body = tags[l], 1, NOW, NOW, 0, 0, 1
  if state then
    form = 0
    if sub(state, 1, #tag) == tag then
      if #state == #tag + ONE_SIZE and byte(state, #tag + 1) == 3 then
        form, before, newest, taken, count, body = 1, one_of(state, #tag + 1)
      elseif #state >= #tag + 19 then
        form, before, newest, taken, count, body = struct_unpack(HEAD, state, #tag + 1)
      end
    end
    if form == 1 and newest <= NOW - lengths[l] then taken, count = 0, 0 end -- all have come back
  end
  local wait, allowed = taken > 0 and newest + pause(l, taken) - NOW or 0, 0
  -- No ban, no clock that was set back, no entry too many.
  local usual = form == 1 and newest <= NOW and (wait > 0 or count < PAUSES)
  if usual and wait <= 0 then
    local text, id = nil, sub(requests, from + 2, from + 9)
    if count == 0 then
      text = tag .. struct_pack(ONE, 3, NOW, 16, 1, id)
    else
      text = tag .. struct_pack(HEAD, 1, before, NOW, taken + 1, count + 1) .. sub(state, body) .. packed(NOW - newest, 1, id)
    end
    allowed, wait = 1, pause(l, taken + 1)
    if state then
      call('SET', KEYS[i], text, 'PX', ttls[l])
    else -- what is of another type looks like nothing in an MGET
      usual = call('SET', KEYS[i], text, 'PX', ttls[l], 'NX')
    end
  end
  if usual then
    reply[r + 1], reply[r + 2], reply[r + 3] = allowed, 0, wait
    r = r + 3
  else
    one = one or general()
    r = one(l, i, i, from, reply, r, state)
  end
  from = from + 16
end
return reply
