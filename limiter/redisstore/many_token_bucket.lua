-- Many token buckets, of requests of windows of their own: see take_token_bucket.lua. An entry
-- is usual if it is of less than 256 permits, and a log if it is short.
--@ wait
local reply, r, now, SMALL, LONG = { NOW }, 1, int(NOW), 12, 16
local strings, lefts, granted = {}, {}, {}
local sums, sizes, trims, members, limit_of, logs, values, unread = {}, {}, {}, {}, {}, {}, {}, false
local NONE, ats, ns = {}, {}, {} -- of each window that had to be read with its times

-- exact reads a log with its times; false if it is not usual.
local function exact(i, l)
  local all, at, n, sum, size = redis.pcall('ZRANGE', logs[i], 0, LONG - 1, 'WITHSCORES'), {}, {}, 0, 0
  if all.err or #all == 2 * LONG then return false end
  local old = NOW - lengths[l]
  for k = 1, #all, 2 do
    local x, y, z, t = byte(all[k], -4, -1)
    local when = tonumber(all[k + 1])
    if not t or y + z + t > 0 or when > NOW then return false end
    if when > old then
      size, sum = size + 1, sum + x
      at[size], n[size] = when, x
    end
  end
  sums[i], sizes[i], trims[i], ats[i], ns[i] = sum, size, size < #all / 2, at, n
  return true
end

-- live reads it without: it costs half as much.
local function live(i, l, value)
  local all, sum = redis.pcall('ZRANGEBYSCORE', logs[i], '(' .. int(NOW - lengths[l]), '+inf'), 0
  if all.err then return false end
  for k = 1, #all do
    local x, y, z, t = byte(all[k], -4, -1)
    if not t or y + z + t > 0 then return false end
    sum = sum + x
  end
  sums[i], sizes[i], trims[i] = sum, #all, value ~= rates[l] - sum
  return true
end

local function read(i, l, value)
  if not value then
    if call('EXISTS', values[i], logs[i]) > 0 then return false end
    sums[i], sizes[i], trims[i], ats[i], ns[i] = 0, 0, false, NONE, NONE
  else
    ats[i] = nil
    if not (value >= 2 and live or exact)(i, l, value) then return false end
  end
  lefts[i] = rates[l] - sums[i]
  return sizes[i] < SMALL
end

for i = 1, #KEYS, 3 do
  local n = #strings
  strings[n + 1], strings[n + 2] = KEYS[i], KEYS[i + 2]
end
local got, count = call('MGET', unpack(strings)), 0

local function fetch(base, n)
  count, unread = n, false
  for i = 1, n do
    local w = base + i
    local k, value = 3 * w - 2, got[2 * w - 1]
    values[i], logs[i], limit_of[i], granted[i] = KEYS[k], KEYS[k + 1], byte(of, k), false
    if got[2 * w] or not read(i, limit_of[i], value and (tonumber(value) or -1)) then return false end
  end
  return true
end

-- wait is how long until cost permits are left; what this call took comes back last.
local function wait(i, cost)
  local length = lengths[limit_of[i]]
  if not ats[i] and not exact(i, limit_of[i]) then
    unread = true
    return length
  end
  local short, at, n = cost - lefts[i], ats[i], ns[i]
  for k = 1, sizes[i] do
    short = short - n[k]
    if short <= 0 then return at[k] + length - NOW end
  end
  return length
end

local function fits() return not unread end

local function store()
  for i = 1, count do
    if granted[i] then
      local l, log = limit_of[i], logs[i]
      local ttl = int(lengths[l] + 2)
      call('ZADD', log, now, members[i])
      if trims[i] then call('ZREMRANGEBYSCORE', log, '-inf', int(NOW - lengths[l])) end
      call('PEXPIRE', log, ttl)
      call('SET', values[i], count_text(lefts[i]), 'PX', ttl)
    end
  end
end

--@ grant
lefts[w], members[w] = lefts[w] - cost, sub(requests, id - 1, id + 7) .. sub(requests, at - 4, at - 1)
