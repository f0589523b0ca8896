-- How a sliding log decides one request, see straight.lua.
--@ decide
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
left = rate - taken
-- No ban, no floor, no clock that was set back, no entry too many.
usual = form == 1 and newest <= NOW and (count < FULL or cost > left)
if usual then
  if cost <= left then
    allowed, left = 1, left - cost
    local text, after = nil, NOW - newest
    local id = sub(requests, from + 2, from + 9)
    if count == 0 and cost < 256 then
      text = struct_pack(TAGGED_ONE, tag, 3, NOW, 16, cost, id)
    else
      local new
      if after < 65536 and cost < 256 then
        new = struct_pack('<BI2Bc8', 18, after, cost, id)
      else
        new = packed(after, cost, id)
      end
      text = struct_pack(TAGGED_HEAD, tag, 1, before, NOW, taken + cost, count + 1) .. (state and sub(state, at) or '') .. new
    end
    if state then
      call('SET', key, text, 'PX', ttl)
    else -- what is of another type looks like nothing in an MGET
      usual = call('SET', key, text, 'PX', ttl, 'NX')
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
end
--@ begin
local TAGGED_ONE, TAGGED_HEAD = '<c0' .. sub(ONE, 2), '<c0' .. sub(HEAD, 2)
