-- Distinct values: when each was used last, and its uses. One is three keys:
--   value    hash    by value, 8 bytes: its uses, oldest first, of 14 bytes each: the first 8 of the decision's ID, and
--                    the time in ms; the last two of them, and one without an ID for those before
--   permits  zset    score = time of the last use in ms, member = the value
--   base     string  "ban:until", mostly absent
-- A value counts until one length after its last use. Whatever is asked costs a few commands, however many values there
-- are. limiter's distinct.go is the same.
local CLAIM_SIZE = 14

-- open counts the values; a claim whose value is one of them costs nothing. Of each value there are uses, or something
-- else has written here.
local used
local function open()
  set_old()
  local size = redis.pcall('ZCARD', log)
  fast, left, trim, used = size == redis.pcall('HLEN', key), rate, false, false
  if fast and size > 0 then
    local current = call('ZCOUNT', log, '(' .. old, now)
    used = call('ZSCORE', log, sub(requests, claim + 6, claim + 13))
    left, trim = rate - current, size > current and old
    fast = not trim or call('ZCOUNT', log, '(' .. now, '+inf') == 0
    if used and tonumber(used) > NOW - length then cost, left = 0, math.max(0, left) end
  end
end

local function take()
  left, cost = left - cost, 0
  state = sub(requests, claim + 6, claim + 13) .. sub(requests, id, id + 7) .. (used and 'k' or '')
end

local function wait()
  local found = call('ZRANGEBYSCORE', log, '(' .. old, '+inf', 'WITHSCORES', 'LIMIT', cost - left - 1, 1)
  later = tonumber(found[2]) + length - NOW
end

local function write()
  set_old()
  add_use(key, log, sub(state, 1, 8), sub(state, 9, 16), #state > 16, trim, ttl)
end
