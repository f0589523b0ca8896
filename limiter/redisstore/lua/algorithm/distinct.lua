-- Distinct values: a log of uses. One is three keys:
--   value    string  never written; its name stands for the window
--   permits  zset    the uses: score = time in ms, member = 8 bytes of the value and 8 of the
--                    decision's ID, see general/distinct.lua
--   base     string  "ban:until", mostly absent
-- A value counts until one length after its last use. limiter's distinct.go is the same.
local CLAIM_SIZE, MOST_USUAL = 14, 64
local uses, last_uses, times

-- open counts the values; what the claim costs is nothing if its value is one of them.
local function open()
  local own, counted = sub(requests, claim + 6, claim + 13), 0
  set_old()
  uses, last_uses, times = redis.pcall('ZRANGEBYSCORE', log, '(' .. old, '+inf'), {}, 0
  usual = not uses.err and #uses <= MOST_USUAL and (#uses == 0 or call('ZCOUNT', log, '(' .. now, '+inf') == 0)
  for i = 1, usual and #uses or 0 do
    local v = sub(uses[i], 1, 8)
    usual = usual and #uses[i] == 16
    if not last_uses[v] then counted = counted + 1 end
    last_uses[v] = i
    if v == own then times = times + 1 end
  end
  left = rate - counted
  if times > 0 then cost, left = 0, math.max(0, left) end
end

local function take()
  usual, left, cost = times < 2, left - cost, 0
  state = sub(requests, claim + 6, claim + 13) .. sub(requests, id, id + 7)
end

local function wait()
  local short, i = cost - left, 0
  while short > 0 do
    i = i + 1
    if last_uses[sub(uses[i], 1, 8)] == i then short = short - 1 end
  end
  later = tonumber(call('ZSCORE', log, uses[i])) + length - NOW
end

local function write()
  set_old()
  call('ZREMRANGEBYSCORE', log, '-inf', old)
  call('ZADD', log, now, state)
  call('PEXPIRE', log, ttl)
end
