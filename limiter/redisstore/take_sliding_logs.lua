-- take_sliding_logs is take for requests of any number of claims over sliding logs,
-- as long as nothing about them is unusual: see take_sliding_log.lua. What is known of
-- the i-th window stands at i of one table for each thing: a table for each window
-- would cost more than its decision.
-- KEYS   state of each window
-- ARGV   limits and windows, see list_windows; then all requests in one string, see
--        decide
-- reply  as that of take
-- The whole script is one step for everybody else.
local rates, lengths, ttls, a = {}, {}, {}, 2
for i = 1, tonumber(ARGV[1]) do
  rates[i], lengths[i], ttls[i] = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), ARGV[a + 4]
  a = a + 5
end
local of, requests = ARGV[a], ARGV[a + 1]
local struct_pack, struct_unpack = struct.pack, struct.unpack
local got = call('MGET', unpack(KEYS))
local befores, newests, takens, counts, froms, lefts = {}, {}, {}, {}, {}, {}

for i = 1, #KEYS do
  local l, state = byte(of, i), got[i]
  local form, before, newest, taken, count, at = 1, NOW, NOW, 0, 0, 1
  if state then
    form = 0
    if #state >= 19 then form, before, newest, taken, count, at = struct_unpack(HEAD, state) end
    local old, size = NOW - lengths[l], #state
    while form == 1 and at <= size do
      local after, n, next = entry(state, at)
      if before + after > old then break end
      before, taken, count, at = before + after, taken - n, count - 1, next
    end
  elseif call('EXISTS', KEYS[i]) == 1 then
    form = 0
  end
  if form ~= 1 or newest > NOW or count >= FULL then return general() end
  befores[i], newests[i], takens[i], counts[i], froms[i], lefts[i] = before, newest, taken, count, at, rates[l] - taken
end

-- wait is how long until cost permits are left of the i-th window. Those that this
-- call took are the last to come back.
local function wait(i, cost)
  local state, length = got[i], lengths[byte(of, i)]
  local short, time, at, size = cost - lefts[i], befores[i], froms[i], state and #state or 0
  while at <= size do
    local after, n, next = entry(state, at)
    time, short, at = time + after, short - n, next
    if short <= 0 then return time + length - NOW end
  end
  return length
end

-- given are the permits that this call took of a window, grants how many times, and
-- adds the entries of those.
local HOT = 4
local reply, r, from, size, given, grants, adds = { NOW }, 1, 1, #requests, {}, {}, {}
while from <= size do
  local n, allowed = byte(requests, from), 1
  local first, answer = from + 1, r + 1
  reply[answer] = 1
  for i = 1, n do
    local b, c, d, e, x, y = byte(requests, from + 10, from + 15)
    local w, cost, waits = x + y * 256, b, 0
    if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
    local left = lefts[w]
    if cost > left then allowed, waits = 0, wait(w, cost) end
    r, from = r + 2, from + 15
    reply[r], reply[r + 1] = left < 0 and 0 or left, waits
  end
  r, from = r + 1, from + 1
  reply[answer] = allowed
  if allowed == 1 then
    for i = 1, n do
      local b, c, d, e, x, y = byte(requests, first + 9, first + 14)
      local w, cost = x + y * 256, b
      if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
      local left, times = lefts[w] - cost, (grants[w] or 0) + 1
      lefts[w], given[w], grants[w] = left, (given[w] or 0) + cost, times
      if times == 1 then
        adds[w] = packed(NOW - newests[w], cost, sub(requests, first + 1, first + 8))
      elseif times <= HOT or rates[byte(of, w)] <= FULL then
        adds[w] = adds[w] .. packed(0, cost, sub(requests, first + 1, first + 8))
      end
      reply[answer + 2 * i - 1], reply[answer + 2 * i] = left, cost > left and wait(w, cost) or 0
      first = first + 15
    end
  end
end

-- Of many that will be merged only the first few are kept one by one.
for w, times in pairs(grants) do
  if times > HOT and rates[byte(of, w)] > FULL then
    adds[w], grants[w], times = packed(NOW - newests[w], given[w]), 1, 1
  end
  if counts[w] + times > FULL then return general() end -- nothing is written yet
end
for w, times in pairs(grants) do
  local l, state, add = byte(of, w), got[w], adds[w]
  local head = struct_pack(HEAD, 1, befores[w], NOW, takens[w] + given[w], counts[w] + times)
  if state then add = sub(state, froms[w]) .. add end
  call('SET', KEYS[w], head .. add, 'PX', ttls[l])
end
return reply
