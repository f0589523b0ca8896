-- Many token buckets, of requests of windows of their own: see take_token_bucket.lua.
--@ wait
local reply, r, now, count = { NOW }, 1, int(NOW), 0
local lefts, granted, logs, limit_of, trims, members, values, logged = {}, {}, {}, {}, {}, {}, {}, {}
local olds, sinces, unread, NONE = {}, {}, false, {}
  --@ begin
  --@ read strings

-- read reads the i-th window, of limit l; false if it is not usual.
local function read(i, l, value)
  local log, rate = logs[i], rates[l]
  if not value then
    if call('EXISTS', values[i], log) > 0 then return false end
    logged[i], trims[i], lefts[i] = NONE, false, rate
    return true
  end
  if not olds[l] then
    olds[l] = int(NOW - lengths[l])
    sinces[l] = '(' .. olds[l]
  end
  local entries = redis.pcall('ZRANGEBYSCORE', log, sinces[l], '+inf')
  local sum = not entries.err and live(entries)
  if not sum then return false end
  logged[i], lefts[i], trims[i] = entries, rate - sum, tonumber(value) ~= rate - sum
  return #entries < SMALL
end

local function fetch(base, n)
  count, unread = n, false
  for i = 1, n do
    local w = base + i
    local k = 3 * w - 2
    local l = byte(of, k)
    values[i], logs[i], limit_of[i], granted[i] = KEYS[k], KEYS[k + 1], l, false
    if got[2 * w] or not read(i, l, got[2 * w - 1]) then return false end
  end
  return true
end

-- wait is how long until cost permits are left; what this call took comes back last.
local function wait(i, cost)
  local length = lengths[limit_of[i]]
  local ms = await(logs[i], logged[i], cost - lefts[i], length)
  if ms then return ms end
  unread = true
  return length
end

local function fits() return not unread end

local function store()
  for i = 1, count do
    if granted[i] then
      local log, ttl = logs[i], ttls[limit_of[i]]
      call('ZADD', log, now, members[i])
      if trims[i] then call('ZREMRANGEBYSCORE', log, '-inf', olds[limit_of[i]]) end
      call('PEXPIRE', log, ttl)
      call('SET', values[i], count_text(lefts[i]), 'PX', ttl)
    end
  end
end

  --@ answer
--@ grant
lefts[w], members[w] = lefts[w] - cost, sub(requests, id - 1, id + 7) .. sub(requests, at - 4, at - 1)
