-- The local variables through which scripts and algorithms pass values to each other. Functions
-- without parameters that are called on a line of their own are inlined, see doc.go.

-- The limit in use, as read_limit reads it, and its number.
local rate, length, most, ttl, field, steps
local FULL = 128 -- entries of a window are merged beyond that
local limit = 1
-- The claim: where it and the ID of its request begin in `requests`, and what it costs.
local requests, id, claim, cost = ARGV[3], 3, 11, 0
-- The state of the window: in `packed`, from first to last. packed is false if there is none.
local packed, first, last
-- What the functions of an algorithm set:
--   open   fast: false if only a general script can decide; left: the permits that are left
--   take   left, without the cost of the claim; if only a general script can do that, fast is
--          false and nothing else is changed
--   save   state, after open and any number of takes
--   wait   later: how many ms until `cost` permits are left
local fast, left, later, state

-- read_limit reads the limit at limit_at: its algorithm (1 byte), rate (4), length in ms (6)
-- and the most of one claim (4), each lowest byte first; then, each after its own length, its
-- time to live in ms as text (1), its field (1) and the steps of a cooldown (2), 6 bytes each.
local limits_text, limit_at, algorithm = ARGV[1], 1, nil
local function read_limit()
  local a, b, c, d, e, f, g, h, i, j, k, m, n, o, size, x, y
  algorithm, a, b, c, d, e, f, g, h, i, j, k, m, n, o, size = byte(limits_text, limit_at, limit_at + 15)
  rate, most = a + b * 256 + c * 65536 + d * 16777216, k + m * 256 + n * 65536 + o * 16777216
  length = e + f * 256 + g * 65536 + (h + i * 256 + j * 65536) * 16777216
  limit_at = limit_at + 16 + size
  ttl, size = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at)
  limit_at = limit_at + 1 + size
  field, x, y = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at, limit_at + 1)
  limit_at = limit_at + 2 + x + y * 256
  steps = sub(limits_text, limit_at - x - y * 256, limit_at - 1)
end

-- read_cost reads the cost of the claim, 4 bytes.
local function read_cost()
  local c, d, e
  cost, c, d, e = byte(requests, claim, claim + 3)
  if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
end
