-- Redis's functions and Lua's by short names.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub = string.byte, string.char, string.sub
-- Numbers as bytes, for windows in packed strings. A Redis without struct, as miniredis is,
-- still decides the algorithms of three keys.
local pack, unpack_at = struct.pack, struct.unpack
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
-- GCRA: `debt` permits are owed now and come back evenly; `free_at` is when none were owed for
-- the last time. limiter's gcra.go is the same arithmetic, in the same order.
--   state  '<BI6I6d': form 1, the time for which debt is known, free_at, debt
local TINY = 1e-6
local free_at, debt




-- What is short says about when; the loops make it exact, whatever was rounded.

--@ general
-- one decides one request of one claim, whose window is alone in its packed string or new. If
-- something is not usual, nothing is written, and general decides.
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
local key, allowed = KEYS[1], 0
packed, usual, later = call('MGET', key)[1], true, 0
if packed then
  first, last = #tag + 1, #packed
  usual = sub(packed, 1, #tag) == tag
end
if usual then
  do
    free_at, debt = NOW, 0
    if packed then
      usual = last - first == 20
      if usual then
        local form, known_at
        form, known_at, free_at, debt = unpack_at('<BI6I6d', packed, first)
        if debt > most then debt = most end -- of a higher limit
        usual, debt = form == 1 and known_at <= NOW, debt - (NOW - known_at) * rate / length
        if not (debt > 0) then free_at, debt = NOW, 0 end -- also if it is no number
      end
    end
    left = floor(most - debt + TINY)
  end
end
if usual and cost <= left then
  allowed = 1
  do
    debt = debt + cost
    left = floor(most - debt + TINY)
  end
end
if usual and cost > left then
  do
    later = math.max(1, math.ceil((debt + cost - most - TINY) * length / rate))
    while later > 1 and floor(most - math.max(0, debt - (later - 1) * rate / length) + TINY) >= cost do later = later - 1 end
    while floor(most - math.max(0, debt - later * rate / length) + TINY) < cost do later = later + 1 end
  end
end
if usual and allowed == 1 then
  do
    state = tag .. pack('<BI6I6d', 1, NOW, free_at, debt)
  end
  if packed then
    call('SET', key, state, 'PX', ttl)
  else -- a key of another type looks like none in an MGET
    usual = call('SET', key, state, 'PX', ttl, 'NX')
  end
end
if usual then return { NOW, allowed, left < 0 and 0 or left, later } end
local reply = { NOW }
general(NOW)(1, reply, 1)
return reply
