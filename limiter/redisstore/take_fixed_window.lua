-- take_fixed_window is take for requests of one claim each, every one on a window of
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
  local form, start, taken = 1, NOW, 0
  if state then
    form = 0
    if #state >= #tag + 11 and sub(state, 1, #tag) == tag then form, start, taken = struct_unpack(FIXED, state, #tag + 1) end
    if form == 1 and NOW - start >= length then start, taken = NOW, 0 end
    if start == 0 then start = NOW end
  end
  local usual = form == 1 and start <= NOW -- no ban, no refund, no clock that was set back
  if usual then
    local left, allowed, wait = rate - taken, 0, 0
    if cost <= left then
      allowed, left = 1, left - cost
      if state then
        call('SET', KEYS[i], tag .. struct_pack(FIXED, 1, start, taken + cost), 'PX', ttls[l])
      else
        usual = call('SET', KEYS[i], tag .. struct_pack(FIXED, 1, start, taken + cost), 'PX', ttls[l], 'NX')
      end
    end
    if cost > left then wait = start + length - NOW end
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
