-- Distinct values: a log of uses. One is three keys:
--   value    string  never written; its name stands for the window
--   permits  zset    the uses: score = time in ms, member = 8 bytes of the value and 8 of the
--                    decision's ID, see general/distinct.lua
--   base     string  "ban:until", mostly absent
-- A value counts until one length after its last use. limiter's distinct.go is the same.
local CLAIM_SIZE, MOST_USUAL = 14, 64
local uses, own
-- What was counted in the uses in `counted_in`: how many values, how many uses by `own`, and of each
-- value how many uses follow its last one. A longer window of a key mostly has the same uses
-- behind others.
local counted_in, counted, times, last_uses = {}, 0, 0, {}

-- open counts the values; a claim whose value is one of them costs nothing.
local function open()
  set_old()
  uses = redis.pcall('ZRANGEBYSCORE', log, '(' .. old, '+inf')
  usual = not uses.err and #uses <= MOST_USUAL and (#uses == 0 or call('ZCOUNT', log, '(' .. now, '+inf') == 0)
  if usual then
    local older, counted_for = #uses - #counted_in, own
    own = sub(requests, claim + 6, claim + 13)
    local same = older >= 0 and own == counted_for
    for i = 1, same and #counted_in or 0 do same = same and counted_in[i] == uses[older + i] end
    if not same then older, counted, times, last_uses = #uses, 0, 0, {} end
    for i = older, 1, -1 do
      local v = sub(uses[i], 1, 8)
      usual = usual and #uses[i] == 16
      if not last_uses[v] then last_uses[v], counted = #uses - i, counted + 1 end
      if v == own then times = times + 1 end
    end
    counted_in, left = uses, rate - counted
    if times > 0 then cost, left = 0, math.max(0, left) end
  end
end

local function take()
  usual, left, cost = times < 2, left - cost, 0
  state = own .. sub(requests, id, id + 7)
end

local function wait()
  local short, i = cost - left, 0
  while short > 0 do
    i = i + 1
    if last_uses[sub(uses[i], 1, 8)] == #uses - i then short = short - 1 end
  end
  later = tonumber(call('ZSCORE', log, uses[i])) + length - NOW
end

local function write()
  set_old()
  call('ZREMRANGEBYSCORE', log, '-inf', old)
  call('ZADD', log, now, state)
  call('PEXPIRE', log, ttl)
end
