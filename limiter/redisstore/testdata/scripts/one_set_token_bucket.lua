-- Redis's functions and Lua's by short names.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub = string.byte, string.char, string.sub
-- Whole numbers as text: int writes any of them, count_text those that fit 32 bits. The type
-- that %d takes has 64 bits on most machines; it needs a sixth of the time of %.0f there.
local format, int_format = string.format, nil
local function int(n)
  if not int_format then int_format = format('%d', 1099511627776) == '1099511627776' and '%d' or '%.0f' end
  return format(int_format, n)
end
local function count_text(n) return format('%d', n) end
-- The frame: local variables through which shapes (one.lua, many.lua ...) and algorithms pass
-- values to each other. A section is a function without parameters that is called on a line of
-- its own. lua.go puts its body in the place of that line, because a call that passes values
-- costs as much as the work that it does. So a section must not return.

-- The limit in use, as read_limit reads it, and its number.
local rate, length, most, ttl, tag, steps
local limit = 1
-- The claim: where it and the ID of its request begin in `requests`, and what it costs.
local requests, id, claim, cost = ARGV[3], 3, 11, 0
-- The state of the window: in `packed`, from first to last. packed is false if there is none.
local packed, first, last
-- What sections of an algorithm set:
--   open   usual: false if only general can decide; left: the permits that are left
--   take   left, without the cost of the claim; if that is not usual it changes nothing else
--   save   state, after open and any number of takes
--   wait   later: how many ms until `cost` permits are left
local usual, left, later, state

-- read_limit reads the limit at limit_at: its algorithm (1 byte), rate (4), length in ms (6)
-- and the most of one claim (4), each lowest byte first; then, each after its own length, its
-- time to live in ms as text (1), its tag (1) and the steps of a cooldown (2), 6 bytes each.
local limits_text, limit_at, algorithm = ARGV[1], 1, nil

-- read_cost reads the cost of the claim, 4 bytes.
-- What shapes and algorithms of three keys pass to each other beside the frame.
--   of the window  the names of its value and log, and the text of its value
--   of the claim   whether taking it removes what has expired
--   of times       now as Redis reads it; old is `old_length` before that
-- open, take and wait are as in frame.lua; write writes what take said.
local key, log, value
local trim
local now, old, old_length = int(NOW), nil, nil

-- A token bucket, or a limit of concurrent permits, is three keys:
--   value    string  permits left: rate - sum of the permits in `permits`
--   permits  zset    what was taken: score = time in ms, member = ID and count, as in
--                    general/bucket_read.lua
--   base     string  "rate:oldest:counted": value was counted for this rate, at the time
--                    `counted`, and nothing comes back before oldest + length. Only with more
--                    entries than are quickly read each time; never needed for a right answer.
--                    Or "ban:until".
-- Value and permits live until the last permit has come back, so without both nothing has to be
-- read. Times are read one at a time: Redis writes them as text, which costs more than the
-- permits of ten entries. A log of more than MOST_USUAL entries is general's.
local CLAIM_SIZE, MOST_USUAL = 6, 12
local entries -- false of a new window



-- wait: until as many permits as are short have come back; those of now come last.

--@ general
-- one_set is one.lua for a window of three keys.
-- KEYS, ARGV, reply  as for command/take.lua
do
  local a, b, c, d, e, f, g, h, i, j, k, m, n, o, size, x, y
  algorithm, a, b, c, d, e, f, g, h, i, j, k, m, n, o, size = byte(limits_text, limit_at, limit_at + 15)
  rate, most = a + b * 256 + c * 65536 + d * 16777216, k + m * 256 + n * 65536 + o * 16777216
  length = e + f * 256 + g * 65536 + (h + i * 256 + j * 65536) * 16777216
  limit_at = limit_at + 16 + size
  ttl, size = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at)
  limit_at = limit_at + 1 + size
  tag, x, y = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at, limit_at + 1)
  limit_at = limit_at + 2 + x + y * 256
  steps = sub(limits_text, limit_at - x - y * 256, limit_at - 1)
end
do
  local c, d, e
  cost, c, d, e = byte(requests, claim, claim + 3)
  if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
end
local allowed, got = 0, call('MGET', KEYS[1], KEYS[3])
key, log, value, usual, later = KEYS[1], KEYS[2], got[1], not got[2], 0
if usual then
  do
    if value then
      local sum = 0
      do
        if old_length ~= length then old, old_length = int(NOW - length), length end
      end
      entries = redis.pcall('ZRANGEBYSCORE', log, '(' .. old, now)
      usual = not entries.err
      for i = 1, usual and #entries or 0 do
        local a, b, c, d = byte(entries[i], -4, -1)
        if not d or b + c + d > 0 then -- 256 permits or more, or of others
          usual = false
          break
        end
        sum = sum + a
      end
      left = rate - sum
      trim = usual and call('ZCARD', log) > #entries -- something has expired, or was taken before the clock was set back
      if trim then usual = call('ZCOUNT', log, '(' .. now, '+inf') == 0 end
    else -- a key of another type looks like none in an MGET
      usual, entries, left, trim = call('EXISTS', key, log) == 0, false, rate, false
    end
  end
end
if usual and cost <= left then
  allowed = 1
  do
    usual, left = not entries or #entries < MOST_USUAL, left - cost
    if claim == id + 8 then
      state = sub(requests, id - 1, claim + 3)
    else
      state = sub(requests, id - 1, id + 7) .. sub(requests, claim, claim + 3)
    end
  end
end
if usual and cost > left then
  do
    local short = cost - left
    later = length
    for i = 1, entries and #entries or 0 do
      short = short - byte(entries[i], -4)
      if short <= 0 then
        later = tonumber(call('ZSCORE', log, entries[i])) + length - NOW
        break
      end
    end
  end
end
if usual and allowed == 1 then
  do
    call('ZADD', log, now, state)
    if trim then
      do
        if old_length ~= length then old, old_length = int(NOW - length), length end
      end
      call('ZREMRANGEBYSCORE', log, '-inf', old)
    end
    call('PEXPIRE', log, ttl)
    call('SET', key, count_text(left), 'PX', ttl)
  end
end
if usual then return { NOW, allowed, left < 0 and 0 or left, later } end
local reply = { NOW }
general(NOW)(1, reply, 1)
return reply
