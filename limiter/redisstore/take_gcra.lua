-- take_gcra is take for requests of one claim each, every one on a window of
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
  local most, form, start, before, debt = mosts[l], 1, NOW, NOW, 0
  if state then
    form = 0
    if #state >= #tag + 21 and sub(state, 1, #tag) == tag then form, start, before, debt = struct_unpack(GCRA, state, #tag + 1) end
  end
  local usual = form == 1 and start <= NOW -- no ban, no refund, no clock that was set back
  if usual then
    debt = debt - (NOW - start) * rate / length
    if debt <= 0 then debt, before = 0, NOW end
    local left, allowed, wait = floor(most - debt + TINY), 0, 0
    if cost <= left then
      allowed, debt = 1, debt + cost
      left = floor(most - debt + TINY)
      if state then
        call('SET', KEYS[i], tag .. struct_pack(GCRA, 1, NOW, before, debt), 'PX', ttls[l])
      else
        usual = call('SET', KEYS[i], tag .. struct_pack(GCRA, 1, NOW, before, debt), 'PX', ttls[l], 'NX')
      end
    end
    if cost > left then wait = until_owed(debt, NOW, rate, length, most, cost) end
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
