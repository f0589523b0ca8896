-- read_state learns of w what its strings say: packed or, with three keys, value and cached_sum.
local function read_state(w, value, cached_sum)
  if not w.cached_sum then
    inside(w, value)
    return w.algorithm.open(w, load_state(w))
  end
  if cached_sum and byte(cached_sum) == 98 then -- b of ban
    local ban = tonumber(string.match(cached_sum, '^ban:(%d+)$'))
    if ban and ban > NOW then w.banned = ban - NOW end
  end
  w.algorithm.open(w, value, cached_sum)
end

-- read_window is read_state that makes w bad if something of it is of another type, which looks
-- like nothing in an MGET, or cannot be read. Reading changes nothing, so only requests that ask
-- for w fail.
local function read_window(w, value, cached_sum)
  if not pcall(read_state, w, value, cached_sum) then w.bad, w.left = true, 0 end
end

-- read_windows is list_windows that also reads their state, with one MGET.
local function read_windows()
  local windows, keys, n = list_windows(), {}, 0
  if #windows == 0 then return windows end
  for i = 1, #windows do
    local w = windows[i]
    keys[n + 1], keys[n + 2] = w.state, w.cached_sum
    n = w.cached_sum and n + 2 or n + 1
  end
  local got = mget(keys)
  n = 1
  for i = 1, #windows do
    local w = windows[i]
    read_window(w, got[n], w.cached_sum and got[n + 1])
    n = w.cached_sum and n + 2 or n + 1
  end
  return windows
end

local all_requests = ARGV[3]
local asked, costs, waits, values, entries = {}, {}, {}, {}, {} -- of the request that is being decided

-- decide answers the request that begins at `from`: a byte says how many claims it has, and
-- nine begin the entry that records a claim of it; then for each claim follow its cost, which ends
-- its entry (4 bytes), the number of its window (2), and a value (8) where values are counted. The
-- reply, see command/take.lua, goes behind `to`. It returns where the next request begins, and the
-- end of the reply.
local function decide(windows, from, reply, to, dry)
  local n, allowed, bad = byte(all_requests, from), true, false
  local id = from + 1
  from = from + 10
  for i = 1, n do
    local c, d, e, f, a, b = byte(all_requests, from, from + 5)
    local w, cost = windows[a + b * 256], c + d * 256 + e * 65536 + f * 16777216
    asked[i], costs[i], entries[i], values[i] = w, cost, from, nil
    from = from + 6
    if w.algorithm.valued then
      values[i] = sub(all_requests, from, from + 7)
      from = from + 8
    end
    bad = bad or w.bad
    local wait = cost > w.left and not w.bad and w.algorithm.wait(w, cost, values[i]) or 0
    if wait > 0 or w.banned then allowed = false end
    waits[i] = wait
  end
  if bad then
    reply[to + 1] = 2
    for i = 1, n do reply[to + 2 * i], reply[to + 2 * i + 1] = asked[i].bad and -2 or 0, 0 end
    return from, to + 2 * n + 1
  end
  reply[to + 1] = allowed and 1 or 0
  for i = 1, n do
    local w, wait = asked[i], waits[i]
    if allowed and not dry then
      local cost, value = costs[i], values[i]
      w.algorithm.take(w, cost, sub(all_requests, id, id + 8) .. sub(all_requests, entries[i], entries[i] + 3), value)
      if cost > w.left then wait = w.algorithm.wait(w, cost, value) end
    end
    local left = w.left
    if w.banned then left, wait = -1, math.max(w.banned, wait) elseif left < 0 then left = 0 end
    reply[to + 2 * i], reply[to + 2 * i + 1] = left, wait
  end
  return from, to + 2 * n + 1
end

-- decide_all answers all requests, one after another. Those whose byte in ARGV[4] is 1 are taken
-- only if the last one before them whose byte is not was granted: otherwise they are not granted.
local function decide_all(windows, dry)
  local follows, reply, from, to, i, granted = ARGV[4], { NOW }, 1, 1, 0, true
  while from <= #all_requests do
    local answer = to + 1
    i = i + 1
    local depends = follows and byte(follows, i) == 1
    from, to = decide(windows, from, reply, to, dry or depends and not granted)
    if not depends then granted = reply[answer] == 1 elseif not granted then reply[answer] = 0 end
  end
  return reply
end
