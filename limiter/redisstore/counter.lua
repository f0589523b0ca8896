-- The algorithms that keep no log: a fixed window, a sliding one of two counters,
-- and GCRA. One is three keys:
--   value    string  "start:taken:before:debt", see each
--   permits  zset    marks of what was given back: score = its time, member = its id;
--                    'floor' says that nothing older is given back any more
--   base     string  "ban:until", mostly absent
-- limiter's counter.go is the same arithmetic, in the same order.

local TINY = 1e-6

-- horizon is how long after its last permit a key is as new.
local function horizon(w) return w.l.ttl - SLACK end

local function load(w, state)
  local start, taken, before, debt
  if state then
    start, taken, before, debt = string.match(state, '^(-?%d+):(-?%d+):(-?%d+):([%d.e+-]+)$')
  end
  w.start, w.taken = tonumber(start) or 0, tonumber(taken) or 0
  w.before, w.debt = tonumber(before) or 0, tonumber(debt) or 0
end

local function save(w)
  local state = format('%.0f:%.0f:%.0f:%.17g', w.start, w.taken, w.before, w.debt)
  call('SET', w.state, state, 'PX', w.l.ttl)
end

-- once marks id as given back, unless it is, may have been, or is all back.
local function once(w, id, at)
  local limit = call('ZSCORE', w.log, FLOOR)
  if at <= NOW - horizon(w) or limit and at <= tonumber(limit) then return false end
  if call('ZSCORE', w.log, id) then return false end
  call('ZREMRANGEBYSCORE', w.log, '-inf', int(NOW - horizon(w)))
  if call('ZCARD', w.log) >= SLOTS then
    local oldest = call('ZRANGE', w.log, 0, 0, 'WITHSCORES')
    call('ZREM', w.log, oldest[1])
    call('ZADD', w.log, 'GT', oldest[2], FLOOR)
  end
  call('ZADD', w.log, int(at), id)
  call('PEXPIRE', w.log, w.l.ttl)
  return true
end

-- counting makes an algorithm of its own functions and those that all share.
local function counting(kind)
  kind.keys = 3
  function kind.open(w, state)
    load(w, state)
    kind.settle(w)
    w.left = kind.remains(w)
  end
  function kind.take(w, cost)
    kind.add(w, cost)
    w.left, w.changed = kind.remains(w), true
  end
  function kind.keep(w)
    if w.changed then save(w) end
  end
  function kind.refund(w, id, cost, at)
    kind.open(w, call('GET', w.state))
    if not kind.holds(w, at) or not once(w, id, at) then return 0 end
    local n = kind.back(w, at, cost)
    if n > 0 then save(w) end
    return n
  end
  function kind.grant(w, n)
    kind.open(w, call('GET', w.state))
    kind.give(w, n)
    save(w)
  end
  return kind
end

-- A fixed window: start is when its first permit was taken.
local fixed = counting({
  settle = function(w)
    w.start = math.min(w.start, NOW)
    if NOW - w.start >= w.l.length then w.start, w.taken = 0, 0 end
  end,
  remains = function(w) return w.l.rate - w.taken end,
  wait = function(w, cost)
    if cost <= w.l.rate - w.taken then return 0 end
    return w.start + w.l.length - NOW
  end,
  add = function(w, cost)
    if w.start == 0 then w.start = NOW end
    w.taken = w.taken + cost
  end,
  holds = function(w, at) return w.start ~= 0 and at >= w.start and w.taken > 0 end,
  back = function(w, at, cost)
    local n = math.min(cost, w.taken)
    w.taken = w.taken - n
    return n
  end,
  give = function(w, n) w.taken = w.taken - math.min(n, w.taken) end,
})

-- The sliding window: start is the number of the window of now, before what was
-- taken in the one before.
local function used(w, at)
  local number = floor(at / w.l.length)
  local n = w.start == number and w.before or w.start + 1 == number and w.taken or 0
  local faded = math.ceil(n * ((number * w.l.length + w.l.length - at) / w.l.length))
  return w.start == number and w.taken + faded or faded
end

local function pick(w, number)
  return number == w.start and 'taken' or number == w.start - 1 and 'before' or nil
end

local function take_out(w, number, n)
  local field = pick(w, number)
  if not field then return 0 end
  n = math.min(n, w[field])
  w[field] = w[field] - n
  return n
end

local sliding = counting({
  settle = function(w)
    local number = floor(NOW / w.l.length)
    if number == w.start + 1 then
      w.before, w.taken = w.taken, 0
    elseif number > w.start then
      w.before, w.taken = 0, 0
    end
    w.start = number
  end,
  remains = function(w) return w.l.rate - used(w, NOW) end,
  wait = function(w, cost)
    local room = w.l.rate - cost
    if used(w, NOW) <= room then return 0 end
    local fading, border, free = w.before, (w.start + 1) * w.l.length, room - w.taken
    if w.taken > room then fading, border, free = w.taken, border + w.l.length, room end
    local at = math.max(border - floor(math.max(0, free) * w.l.length / math.max(1, fading)), NOW + 1)
    while at > NOW + 1 and used(w, at - 1) <= room do at = at - 1 end
    while used(w, at) > room do at = at + 1 end
    return at - NOW
  end,
  add = function(w, cost) w.taken = w.taken + cost end,
  holds = function(w, at)
    local field = pick(w, floor(at / w.l.length))
    return field and w[field] > 0
  end,
  back = function(w, at, cost) return take_out(w, floor(at / w.l.length), cost) end,
  give = function(w, n) take_out(w, w.start - 1, n - take_out(w, w.start, n)) end,
})

-- GCRA: debt permits were owed at start and flow back evenly; before is when
-- nothing was owed last.
local function owed(w, at) return math.max(0, w.debt - (at - w.start) * w.l.rate / w.l.length) end

local function left_gcra(w, at) return floor(w.l.most - owed(w, at) + TINY) end

local gcra = counting({
  settle = function(w) w.start = math.min(w.start, NOW) end,
  remains = function(w) return left_gcra(w, NOW) end,
  wait = function(w, cost)
    if cost <= left_gcra(w, NOW) then return 0 end
    local over = owed(w, NOW) + cost - w.l.most - TINY
    local at = NOW + math.max(1, math.ceil(over * w.l.length / w.l.rate))
    while at > NOW + 1 and left_gcra(w, at - 1) >= cost do at = at - 1 end
    while left_gcra(w, at) < cost do at = at + 1 end
    return at - NOW
  end,
  add = function(w, cost)
    local debt = owed(w, NOW)
    if debt == 0 then w.before = NOW end
    w.debt, w.start = debt + cost, NOW
  end,
  holds = function(w, at) return owed(w, NOW) > 0 and at >= w.before end,
  back = function(w, at, cost)
    w.debt, w.start = math.max(0, owed(w, NOW) - cost), NOW
    return cost
  end,
  give = function(w, n) w.debt, w.start = math.max(0, owed(w, NOW) - n), NOW end,
})

KINDS['1'], KINDS['2'], KINDS['3'] = fixed, sliding, gcra
