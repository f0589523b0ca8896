-- What a script is told of limits, in one string, is read into one table for each thing:
-- of each limit its algorithm (1 byte), its rate (4), its length in ms (6), the most of a
-- claim (4), all lowest byte first; then, each behind its own length, its time to live in
-- ms as a text (1), its tag (1, see box.lua) and the steps of a cooldown (2), 6 bytes each.
local rates, lengths, mosts, ttls, tags = {}, {}, {}, {}, {}
local algorithms, steps = {}, {}
do
  local said, at, i = ARGV[1], 1, 1
  while at <= #said do
    local al, a, b, c, d, e, f, g, h, j, k, m, n, o, p, size = byte(said, at, at + 15)
    algorithms[i], rates[i] = al, a + b * 256 + c * 65536 + d * 16777216
    lengths[i] = e + f * 256 + g * 65536 + (h + j * 256 + k * 65536) * 16777216
    mosts[i] = m + n * 256 + o * 65536 + p * 16777216
    at = at + 16 + size
    ttls[i] = sub(said, at - size, at - 1)
    size = byte(said, at)
    tags[i] = sub(said, at + 1, at + size)
    at = at + 1 + size
    local x, y = byte(said, at, at + 1)
    x, at = x + y * 256, at + 2
    if x > 0 then steps[i] = sub(said, at, at + x - 1) end
    at, i = at + x, i + 1
  end
end

-- The windows, and the requests, see windows.lua and decide.lua.
local of, requests = ARGV[2], ARGV[3]
