-- open learns of w what its strings say: its box or, with three keys, state and base.
-- What is of another type looks like nothing in an MGET.
local function open(w, state, base)
  if not w.base then
    inside(w, state)
    return w.l.kind.open(w, load_state(w))
  end
  if base and byte(base) == 98 then -- b of ban
    local ban = tonumber(string.match(base, '^ban:(%d+)$'))
    if ban and ban > NOW then w.banned = ban - NOW end
  end
  w.l.kind.open(w, state, base)
end

-- try is open that makes w bad if something of it is of another type, or not readable.
-- Reading changes nothing, so only those who ask for w are refused an answer.
local function try(w, state, base)
  if not pcall(open, w, state, base) then w.bad, w.left = true, 0 end
end

-- read_windows is list_windows that also reads their state, with one MGET.
local function read_windows()
  local windows, first = list_windows()
  if #windows == 0 then return windows, first end
  local strings, n = {}, 0
  for i = 1, #windows do
    local w = windows[i]
    strings[n + 1], strings[n + 2] = w.state, w.base
    n = w.base and n + 2 or n + 1
  end
  local got = call('MGET', unpack(strings))
  n = 1
  for i = 1, #windows do
    local w = windows[i]
    try(w, got[n], w.base and got[n + 1])
    n = w.base and n + 2 or n + 1
  end
  return windows, first
end

local asked, costs, waits, values, entries = {}, {}, {}, {}, {} -- of the request that is being decided

-- decide answers one of the requests, the one that begins at `from`: a byte that
-- says how many claims it has (128 more: see plain_boxes.lua), nine that begin the entry which would record it; then for
-- each claim four that end its entry, its cost, the number of its window (2 bytes), and
-- a value (8 bytes) where its kind is one of values. It takes all claims or none, and
-- writes into the reply behind `to`: 1 or 0, then for each claim what is left, or
-- -1 if the key is banned, and how long until the same claim passes. A request with
-- a bad window takes nothing: 2, and -2 for each claim of such a one. It returns where
-- the next request begins, and the end of the reply.
local function decide(windows, requests, from, reply, to, dry)
  local n, allowed, bad = byte(requests, from), true, false
  if n > 128 then n = n - 128 end
  local id = from + 1
  from = from + 10
  for i = 1, n do
    local c, d, e, f, a, b = byte(requests, from, from + 5)
    local w, cost = windows[a + b * 256], c + d * 256 + e * 65536 + f * 16777216
    asked[i], costs[i], entries[i], values[i] = w, cost, from, nil
    from = from + 6
    if w.l.kind.valued then
      values[i] = sub(requests, from, from + 7)
      from = from + 8
    end
    bad = bad or w.bad
    local wait = cost > w.left and not w.bad and w.l.kind.wait(w, cost, values[i]) or 0
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
      local kind, cost, value = w.l.kind, costs[i], values[i]
      kind.take(w, cost, sub(requests, id, id + 8) .. sub(requests, entries[i], entries[i] + 3), value)
      if cost > w.left then wait = kind.wait(w, cost, value) end
    end
    local left = w.left
    if w.banned then left, wait = -1, math.max(w.banned, wait) elseif left < 0 then left = 0 end
    reply[to + 2 * i], reply[to + 2 * i + 1] = left, wait
  end
  return from, to + 2 * n + 1
end

-- decide_all answers all requests, one after another.
local function decide_all(windows, requests, dry)
  local reply, from, to = { NOW }, 1, 1
  while from <= #requests do from, to = decide(windows, requests, from, reply, to, dry) end
  return reply
end
