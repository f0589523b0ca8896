-- How a token bucket decides one request, see straight.lua; its windows are
-- keys_bucket.lua's. What is of another kind than usual: an entry of
-- 256 permits or more, or of somebody else's; a log of many.
--
-- Value and permits live until the last permit has come back, so without both there is
-- nothing to read and nothing to trim. Times are read one at a time: Redis writes them as
-- texts, which costs more than the permits of ten entries.
--@ begin
local SMALL, STRIDE = 12, 16

-- live sums the permits of entries; nothing if one is not as usual.
local function live(entries)
  local sum = 0
  for i = 1, #entries do
    local x, y, z, t = byte(entries[i], -4, -1)
    if not t or y + z + t > 0 then return nil end
    sum = sum + x
  end
  return sum
end

-- await is how long until so many permits of entries have come back, of which what is taken
-- now does last; nothing if that is not as usual.
local function await(log, entries, short, length)
  for i = 1, #entries do
    short = short - byte(entries[i], -4)
    if short <= 0 then
      local at = tonumber(call('ZSCORE', log, entries[i]))
      return at <= NOW and at + length - NOW
    end
  end
  return length
end
--@ decide
if base then -- a ban, or many entries
elseif not state then
  -- What is of another type looks like nothing in an MGET.
  if call('EXISTS', log) == 0 and call('SET', key, count_text(rate - cost), 'PX', ttl, 'NX') then
    usual, allowed, left = true, 1, rate - cost
    if cost > left then wait = length end
    call('ZADD', log, now, sub(requests, from + 1, from + 13))
    call('PEXPIRE', log, ttl)
  end
else
  --@ since
  local entries = redis.pcall('ZRANGEBYSCORE', log, since, '+inf')
  local sum = not entries.err and live(entries)
  if sum then
    left = rate - sum
    local rest = cost <= left and left - cost or left
    if cost > rest then wait = await(log, entries, cost - rest, length) end
    usual = wait and (cost > left or #entries < SMALL)
    if usual and cost <= left then
      call('ZADD', log, now, sub(requests, from + 1, from + 13))
      if tonumber(state) ~= left then call('ZREMRANGEBYSCORE', log, '-inf', old) end
      call('PEXPIRE', log, ttl)
      call('SET', key, count_text(rest), 'PX', ttl)
      allowed = 1
    end
    left = rest
  end
end
