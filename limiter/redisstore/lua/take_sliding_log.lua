-- How a sliding log decides one request, see straight.lua.
--@ decide
  --@ unpack entries
if form == 1 and state then
  local old = NOW - length
  if newest <= old then -- all have come back
    before, taken, count, at = newest, 0, 0, size + 1
  end
  while before <= old and at <= size do
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
      local made
      --@ pack entry
      text = struct_pack(TAGGED_HEAD, tag, 1, before, NOW, taken + cost, count + 1) .. (state and sub(state, at) or '') .. made
    end
    --@ set state
  end
  if cost > left then -- until when: as many as are short come back
    local short, time = cost - left, before
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
