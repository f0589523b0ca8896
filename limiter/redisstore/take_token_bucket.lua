-- take_token_bucket is take for requests of one claim each, every one on a window of
-- its own: the usual way straight on, without what only others need.
-- KEYS   value, permits and base of each window
-- ARGV   limits and windows, see limits.lua and list_windows; then all requests in one string, see
--        decide
-- reply  as that of take
-- The whole script is one step for everybody else.
--
-- Value and permits live until the last permit has come back (and 2 ms: TIME and the
-- time by which keys expire may be read in two milliseconds), so without both there
-- is nothing to read and nothing to trim.
local lives, sinces, olds, now = {}, {}, {}, int(NOW)
local strings, n = {}, 0
for i = 1, #KEYS, 3 do
  strings[n + 1], strings[n + 2] = KEYS[i], KEYS[i + 2]
  n = n + 2
end
local got, reply, r, from, one = call('MGET', unpack(strings)), { NOW }, 1, 1, nil

-- live sums the permits of the entries that are out, and counts them; nothing if one
-- is not as usual: of 255 or more, or of somebody else's.
local function live(log, since)
  local entries, sum = redis.pcall('ZRANGEBYSCORE', log, since, '+inf'), 0
  if entries.err then return nil end
  for i = 1, #entries do
    local x, y, z, t = byte(entries[i], -4, -1)
    if not t or y + z + t > 0 then return nil end
    sum = sum + x
  end
  return sum, #entries
end

-- exact reads a short log with its times: what is out, how many entries that are, and
-- whether there are others. Nothing if it is long or not as usual.
local ats, ns = {}, {}
local function exact(log, length)
  local all, sum, size = redis.pcall('ZRANGE', log, 0, 15, 'WITHSCORES'), 0, 0
  if all.err or #all == 32 then return nil end
  for i = 1, #all, 2 do
    local x, y, z, t = byte(all[i], -4, -1)
    local at = tonumber(all[i + 1])
    if not t or y + z + t > 0 or at > NOW then return nil end
    if at > NOW - length then
      size, sum = size + 1, sum + x
      ats[size], ns[size] = at, x
    end
  end
  return sum, size, size < #all / 2
end

-- waits is how long until so many more of the entries that exact read have come back.
local function waits(short, size, length)
  for i = 1, size do
    short = short - ns[i]
    if short <= 0 then return ats[i] + length - NOW end
  end
  return length
end

for i = 1, #KEYS / 3 do
  local k = 3 * i - 2
  local l = byte(of, k)
  local rate, length, ttl, log, value = rates[l], lengths[l], lives[l], KEYS[k + 1], got[2 * i - 1]
  if not ttl then
    ttl = int(length + 2)
    lives[l] = ttl
  end
  local b, c, d, e = byte(requests, from + 10, from + 13)
  local cost, left, wait, trims = b, nil, 0, false
  if c + d + e > 0 then cost = b + c * 256 + d * 65536 + e * 16777216 end
  if got[2 * i] then
    left = nil -- a ban, or many entries
  elseif not value then
    -- What is of another type looks like nothing in an MGET.
    if call('EXISTS', log) == 0 and call('SET', KEYS[k], count_text(rate - cost), 'PX', ttl, 'NX') then left = rate - cost end
    if left and left < cost then wait = length end
  else
    value = tonumber(value)
    if not olds[l] then
      olds[l] = int(NOW - length)
      sinces[l] = '(' .. olds[l]
    end
    local sum, size
    if value and value >= 2 * cost then
      sum, size = live(log, sinces[l])
      trims = sum and value ~= rate - sum
    end
    if not sum or rate - sum < 2 * cost then -- it is refused, or the next one is
      sum, size, trims = exact(log, length)
      if sum and sum + cost > rate - cost then wait = waits(sum + cost + (sum + cost > rate and 0 or cost) - rate, size, length) end
    end
    if sum and sum + cost > rate then
      local rest = rate - sum
      reply[r + 1], reply[r + 2], reply[r + 3] = 0, rest < 0 and 0 or rest, wait
      r, left = r + 3, -1
    elseif sum and size < 12 then
      left = rate - sum - cost
    end
  end
  if not left then
    one = one or general()
    r = one(l, i, k, from, reply, r, got[2 * i - 1], got[2 * i])
  elseif left >= 0 then
    call('ZADD', log, now, sub(requests, from + 1, from + 13))
    if trims then call('ZREMRANGEBYSCORE', log, '-inf', olds[l]) end
    call('PEXPIRE', log, ttl)
    if got[2 * i - 1] then call('SET', KEYS[k], count_text(left), 'PX', ttl) end
    reply[r + 1], reply[r + 2], reply[r + 3] = 1, left, wait
    r = r + 3
  end
  from = from + 16
end
return reply
