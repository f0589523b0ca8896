-- Many windows of distinct values, of requests of windows of their own: see
-- take_distinct.lua.
--@ wait
local reply, r, now, count = { NOW }, 1, int(NOW), 0
local olds, sinces, limit_of, logs, logged, members, trims = {}, {}, {}, {}, {}, {}, {}
local allowed, usual = 1, true
  --@ begin
  --@ read strings

-- fetch reads the n windows behind the base-th; it is false if one is not usual. A log
-- that holds no more than its uses until now has none to trim, and none of a clock that
-- was set back.
local function fetch(base, n)
  count = n
  for i = 1, n do
    local k = 3 * (base + i) - 2
    local l, log = byte(of, k), KEYS[k + 1]
    local length, old, since = lengths[l], olds[l], sinces[l]
    --@ since
    local uses = redis.pcall('ZRANGEBYSCORE', log, since, now)
    if got[2 * (base + i)] or uses.err or #uses > SOME then return false end
    trims[i] = call('ZCARD', log) > #uses
    if trims[i] and call('ZCOUNT', log, '(' .. now, '+inf') > 0 then return false end
    olds[l], sinces[l], limit_of[i], logs[i], logged[i] = old, since, l, log, uses
  end
  return true
end

-- What is known of the values in `seen`, the uses of a window: of each how many uses behind
-- its last one there are; how many values; how often `own` was used. A longer window of
-- the same key mostly has the same uses, behind others.
local seen, last, standing, own, times

-- same reports whether uses ends with those that were seen.
local function same(uses)
  local older = #uses - #seen
  if older < 0 then return false end
  for i = 1, #seen do
    if seen[i] ~= uses[older + i] then return false end
  end
  return true
end

-- see counts the values in uses; it is false if one is not as usual.
local function see(uses, value)
  if value ~= own or not same(uses) then seen, last, standing, own, times = {}, {}, 0, value, 0 end
  for i = #uses - #seen, 1, -1 do
    local v = sub(uses[i], 1, 8)
    if #uses[i] ~= 16 then return false end
    if not last[v] then last[v], standing = #uses - i, standing + 1 end
    if v == own then times = times + 1 end
  end
  seen = uses
  return times < 2
end

-- await is how long it takes until `short` values are not counted any more, which is one
-- length after the last use of each.
local function await(log, uses, short, length)
  local i = 0
  while short > 0 do
    i = i + 1
    if last[sub(uses[i], 1, 8)] == #uses - i then short = short - 1 end
  end
  return tonumber(call('ZSCORE', log, uses[i])) + length - NOW
end

-- answer decides the request that begins at `from`, over windows that are read already
-- and counted from behind `base`. It returns where the next request begins.
local function answer(from, base)
  local at, start, news = from + 10, r + 1, {}
  seen, own, allowed, usual = {}, nil, 1, true
  for j = 1, count do
    local cost, c, d, e, x, y = byte(requests, at, at + 5)
    --@ cost
    local i, wait, value = x + y * 256 - base, 0, sub(requests, at + 6, at + 13)
    if not see(logged[i], value) then usual = false end
    local l = limit_of[i]
    local left = rates[l] - standing
    if times > 0 then
      news[j] = 0
    elseif cost <= left then
      news[j] = 1
    elseif usual then
      allowed, wait = 0, await(logs[i], logged[i], cost - left, lengths[l])
    end
    members[i] = value .. sub(requests, from + 2, from + 9)
    reply[start + 2 * j - 1], reply[start + 2 * j] = left, wait
    at = at + 14
  end
  reply[start] = allowed
  for j = 1, count do
    local left = reply[start + 2 * j - 1]
    if allowed == 1 and news[j] then left = left - news[j] end
    reply[start + 2 * j - 1] = left < 0 and 0 or left
  end
  r = start + 2 * count
  return at
end

local function fits() return usual end

local function store()
  for i = 1, allowed == 1 and count or 0 do
    local log, l = logs[i], limit_of[i]
    if trims[i] then call('ZREMRANGEBYSCORE', log, '-inf', olds[l]) end
    call('ZADD', log, now, members[i])
    call('PEXPIRE', log, ttls[l])
  end
end
