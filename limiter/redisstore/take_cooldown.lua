-- take_cooldown is take for requests of one claim each, every one on a window of its
-- own: straight on, see take_sliding_log.lua.
-- KEYS   state of each window
-- ARGV   limits and windows, see limits.lua and list_windows; then all requests in one string, see
--        decide
-- reply  as that of take
-- The whole script is one step for everybody else.
local COOLDOWN, PAUSES = '<BI6I6', 32 -- see cooldown.lua
local struct_pack, struct_unpack = struct.pack, struct.unpack
local got, reply, r, from, one = call('MGET', unpack(KEYS)), { NOW }, 1, 1, nil
local pauses = {} -- of each limit

-- pause is that of the limit l after so many permits.
local function pause(l, level)
  local all = pauses[l]
  if not all then
    all = {}
    for s in string.gmatch(steps[l], '%d+') do all[#all + 1] = tonumber(s) end
    pauses[l] = all
  end
  return all[math.min(level, #all)]
end

for i = 1, #KEYS do
  local l, state = byte(of, 3 * i - 2), got[i]
  local tag, cost = tags[l], byte(requests, from + 10)
  local form, ban, first, last, level, count, body = 1, 0, NOW, NOW, 0, 0, ''
  if state then
    form = 0
    if #state >= #tag + 13 and sub(state, 1, #tag) == tag then
      local at
      form, ban, first, at = struct_unpack(COOLDOWN, state, #tag + 1)
      last = first
      local begin, size = at, #state
      while form == 1 and at <= size do
        local after, n, next = entry(state, at)
        last, level, count, at = last + after, level + n, count + 1, next
      end
      if level > 0 and last <= NOW - lengths[l] then -- all have come back
        first, last, level, count = NOW, NOW, 0, 0
      elseif count > 0 then
        body = sub(state, begin)
      else
        first, last = NOW, NOW
      end
    end
  end
  -- No ban, no clock that was set back, no entry too many.
  local usual = form == 1 and ban <= NOW and last <= NOW and count < PAUSES and cost == 1
  if usual then
    local allowed, wait = 0, 0
    if level > 0 then wait = last + pause(l, level) - NOW end
    if wait <= 0 then
      allowed, wait = 1, pause(l, level + 1)
      local text = tag .. struct_pack(COOLDOWN, 1, ban, first) .. body .. packed(NOW - last, 1, sub(requests, from + 2, from + 9))
      if state then
        call('SET', KEYS[i], text, 'PX', ttls[l])
      else -- what is of another type looks like nothing in an MGET
        usual = call('SET', KEYS[i], text, 'PX', ttls[l], 'NX')
      end
    end
    reply[r + 1], reply[r + 2], reply[r + 3] = allowed, 0, wait
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
