-- The algorithms that keep no log: a fixed window, a sliding one of two counters,
-- and GCRA. One is three keys:
--   state  string  "start:taken:before:debt", see each
--   log    zset    marks of what was given back: score = its time, member = its id;
--                  'floor' says that nothing older is given back any more
--   base   string  "ban:until", mostly absent
-- limiter's counter.go is the same arithmetic, in the same order.

local TINY = 1e-6

local function horizon(w)
  if w.algorithm == 2 then return 2 * w.length end
  if w.algorithm == 3 then return math.ceil(w.most * w.length / w.rate) end
  return w.length
end

local function load(w, state)
  local start, taken, before, debt
  if state then
    start, taken, before, debt = string.match(state, '^(-?%d+):(-?%d+):(-?%d+):([%d.e+-]+)$')
  end
  w.start, w.taken = tonumber(start) or 0, tonumber(taken) or 0
  w.before, w.debt = tonumber(before) or 0, tonumber(debt) or 0
end

local function save(w)
  local state = table.concat({ int(w.start), int(w.taken), int(w.before), string.format('%.17g', w.debt) }, ':')
  call('SET', w.state, state, 'PX', int(horizon(w) + SLACK))
end

-- once marks id as given back, unless it is, may have been, or is all back.
local function once(w, id, at)
  local limit = call('ZSCORE', w.log, FLOOR)
  if at <= w.now - horizon(w) or limit and at <= tonumber(limit) then return false end
  if call('ZSCORE', w.log, id) then return false end
  call('ZREMRANGEBYSCORE', w.log, '-inf', int(w.now - horizon(w)))
  if call('ZCARD', w.log) >= SLOTS then
    local oldest = call('ZRANGE', w.log, 0, 0, 'WITHSCORES')
    call('ZREM', w.log, oldest[1])
    call('ZADD', w.log, 'GT', oldest[2], FLOOR)
  end
  call('ZADD', w.log, int(at), id)
  call('PEXPIRE', w.log, int(horizon(w) + SLACK))
  return true
end

-- counting makes an algorithm of its own functions and those that all share.
local function counting(kind)
  function kind.open(w, state)
    load(w, state)
    kind.settle(w)
  end
  function kind.take(w, id, cost)
    kind.add(w, cost)
    w.changed = true
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
    w.start = math.min(w.start, w.now)
    if w.now - w.start >= w.length then w.start, w.taken = 0, 0 end
  end,
  left = function(w) return w.rate - w.taken end,
  wait = function(w, cost)
    if cost <= w.rate - w.taken then return 0 end
    return w.start + w.length - w.now
  end,
  add = function(w, cost)
    if w.start == 0 then w.start = w.now end
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
  local number = floor(at / w.length)
  local n = w.start == number and w.before or w.start + 1 == number and w.taken or 0
  local faded = math.ceil(n * ((number * w.length + w.length - at) / w.length))
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
    local number = floor(w.now / w.length)
    if number == w.start + 1 then
      w.before, w.taken = w.taken, 0
    elseif number > w.start then
      w.before, w.taken = 0, 0
    end
    w.start = number
  end,
  left = function(w) return w.rate - used(w, w.now) end,
  wait = function(w, cost)
    local room = w.rate - cost
    if used(w, w.now) <= room then return 0 end
    local fading, border, free = w.before, (w.start + 1) * w.length, room - w.taken
    if w.taken > room then fading, border, free = w.taken, border + w.length, room end
    local at = math.max(border - floor(math.max(0, free) * w.length / math.max(1, fading)), w.now + 1)
    while at > w.now + 1 and used(w, at - 1) <= room do at = at - 1 end
    while used(w, at) > room do at = at + 1 end
    return at - w.now
  end,
  add = function(w, cost) w.taken = w.taken + cost end,
  holds = function(w, at)
    local field = pick(w, floor(at / w.length))
    return field and w[field] > 0
  end,
  back = function(w, at, cost) return take_out(w, floor(at / w.length), cost) end,
  give = function(w, n) take_out(w, w.start - 1, n - take_out(w, w.start, n)) end,
})

-- GCRA: debt permits were owed at start and flow back evenly; before is when
-- nothing was owed last.
local function owed(w, at) return math.max(0, w.debt - (at - w.start) * w.rate / w.length) end

local function left_gcra(w, at) return floor(w.most - owed(w, at) + TINY) end

local gcra = counting({
  settle = function(w) w.start = math.min(w.start, w.now) end,
  left = function(w) return left_gcra(w, w.now) end,
  wait = function(w, cost)
    if cost <= left_gcra(w, w.now) then return 0 end
    local over = owed(w, w.now) + cost - w.most - TINY
    local at = w.now + math.max(1, math.ceil(over * w.length / w.rate))
    while at > w.now + 1 and left_gcra(w, at - 1) >= cost do at = at - 1 end
    while left_gcra(w, at) < cost do at = at + 1 end
    return at - w.now
  end,
  add = function(w, cost)
    local debt = owed(w, w.now)
    if debt == 0 then w.before = w.now end
    w.debt, w.start = debt + cost, w.now
  end,
  holds = function(w, at) return owed(w, w.now) > 0 and at >= w.before end,
  back = function(w, at, cost)
    w.debt, w.start = math.max(0, owed(w, w.now) - cost), w.now
    return cost
  end,
  give = function(w, n) w.debt, w.start = math.max(0, owed(w, w.now) - n), w.now end,
})
