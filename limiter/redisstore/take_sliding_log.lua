-- take_sliding_log is take for requests of one claim each, every one on a window of
-- its own: the usual way straight on, without what only others need.
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
  local form, before, newest, taken, count, at = 1, NOW, NOW, 0, 0, 1
  if state then
    form = 0
    local old, size = NOW - length, #state
    if sub(state, 1, #tag) == tag then
      if size == #tag + ONE_SIZE and byte(state, #tag + 1) == 3 then
        form, before, newest, taken, count, at = 1, one_of(state, #tag + 1)
      elseif size >= #tag + 19 then
        form, before, newest, taken, count, at = struct_unpack(HEAD, state, #tag + 1)
      end
    end
    if form == 1 and newest <= old then -- all have come back
      before, taken, count, at = newest, 0, 0, size + 1
    end
    while form == 1 and before <= old and at <= size do
      local after, n, next = entry(state, at)
      if before + after > old then break end
      before, taken, count, at = before + after, taken - n, count - 1, next
    end
  end
  local b, c, d, e = byte(requests, from + 10, from + 13)
  local cost = b
  if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
  local left, wait = rate - taken, 0
  -- No ban, no floor, no clock that was set back, no entry too many.
  local usual = form == 1 and newest <= NOW and (count < FULL or cost > left)
  if usual then
    local allowed = cost <= left and 1 or 0
    if allowed == 1 then
      left = left - cost
      local text, after = nil, NOW - newest
      local id = sub(requests, from + 2, from + 9)
      if count == 0 and cost < 256 then
        text = tag .. struct_pack(ONE, 3, NOW, 16, cost, id)
      else
        local new
        if after < 65536 and cost < 256 then
          new = struct_pack('<BI2Bc8', 18, after, cost, id)
        else
          new = packed(after, cost, id)
        end
        text = tag .. struct_pack(HEAD, 1, before, NOW, taken + cost, count + 1) .. (state and sub(state, at) or '') .. new
      end
      if state then
        call('SET', KEYS[i], text, 'PX', ttls[l])
      else -- what is of another type looks like nothing in an MGET
        usual = call('SET', KEYS[i], text, 'PX', ttls[l], 'NX')
      end
    end
    if cost > left then -- until when: as many as are short come back
      local short, time, size = cost - left, before, state and #state or 0
      wait = length
      while at <= size do
        local after, n, next = entry(state, at)
        time, short, at = time + after, short - n, next
        if short <= 0 then
          wait = time + length - NOW
          break
        end
      end
    end
    reply[r + 1], reply[r + 2], reply[r + 3] = allowed, left < 0 and 0 or left, wait
  end
  if usual then
    r = r + 3
  else
    one = one or general()
    r = one(l, i, i, from, reply, r, state)
  end
  from = from + 16
end
return reply
