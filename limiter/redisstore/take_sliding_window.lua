-- take_sliding_window is take for requests of one claim each, every one on a window of
-- its own: straight on, see take_sliding_log.lua.
-- KEYS   state of each window
-- ARGV   limits and windows, see limits.lua and list_windows; then all requests in one string, see
--        decide
-- reply  as that of take
-- The whole script is one step for everybody else.
local struct_pack, struct_unpack = struct.pack, struct.unpack
local got, reply, r, from, one = call('MGET', unpack(KEYS)), { NOW }, 1, 1, nil

for i = 1, #KEYS do
  local l, state = byte(of, 3 * i - 2), got[i]
  local rate, length, tag = rates[l], lengths[l], tags[l]
  local b, c, d, e = byte(requests, from + 10, from + 13)
  local cost = b
  if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
  local number, form, start, taken, before = floor(NOW / length), 1, 0, 0, 0
  if state then
    form = 0
    if #state >= #tag + 15 and sub(state, 1, #tag) == tag then form, start, taken, before = struct_unpack(SLIDING, state, #tag + 1) end
    if form == 1 and start ~= number then
      before = start == number - 1 and taken or 0
      taken = 0
    end
  end
  local usual = form == 1 and start <= number -- no ban, no refund, no clock that was set back
  if usual then
    start = number
    local left, allowed, wait = rate - used(start, taken, before, NOW, length), 0, 0
    if cost <= left then
      allowed, left, taken = 1, left - cost, taken + cost
      if state then
        call('SET', KEYS[i], tag .. struct_pack(SLIDING, 1, start, taken, before), 'PX', ttls[l])
      else
        usual = call('SET', KEYS[i], tag .. struct_pack(SLIDING, 1, start, taken, before), 'PX', ttls[l], 'NX')
      end
    end
    if cost > left then wait = until_used(start, taken, before, length, rate - cost) end
    reply[r + 1], reply[r + 2], reply[r + 3] = allowed, left < 0 and 0 or left, wait
  end
  if usual then
    r = r + 3
  else
    one = one or general()
    r = one(l, i, i, from, reply, r, got[i])
  end
  from = from + 16
end
return reply
