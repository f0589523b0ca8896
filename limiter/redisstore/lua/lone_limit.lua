-- Of the limit, see limits.lua, and of the request, see decide.lua.
local said, requests, from = ARGV[1], ARGV[3], 1
local _, a, b, c, d, e, f, g, h, j, k, m, n, o, p, x = byte(said, 1, 16)
local rate, length = a + b * 256 + c * 65536 + d * 16777216, e + f * 256 + g * 65536 + (h + j * 256 + k * 65536) * 16777216
local most, ttl = m + n * 256 + o * 65536 + p * 16777216, sub(said, 17, 16 + x)
local y = byte(said, 17 + x)
local tag, step = sub(said, 18 + x, 17 + x + y), sub(said, 20 + x + y)
local cost, s, t, u = byte(requests, 11, 14)
if s + t + u > 0 then cost = cost + s * 256 + t * 65536 + u * 16777216 end
local usual, allowed, left, wait = false, 0, 0, 0
