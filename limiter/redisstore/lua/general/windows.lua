-- SLACK is how long, in ms, keys outlive what they must remember. KINDS are the
-- algorithms by their numbers; each file enters its own.
local SLACK, KINDS = 1000, {}

-- list_limits makes a table of each limit: see limits.lua.
local function list_limits()
  local limits = {}
  for i = 1, #rates do
    local rate, algorithm, length = rates[i], algorithms[i], lengths[i]
    local old = int(NOW - length)
    limits[i] = {
      kind = KINDS[algorithm], algorithm = algorithm, merges = rate > FULL and algorithm ~= 4,
      rate = rate, length = length, most = mosts[i], steps = steps[i], ttl = ttls[i], tag = tags[i],
      old = old, since = '(' .. old, horizon = algorithm == 0 and length or ttls[i] - SLACK,
    }
  end
  return limits
end

-- window is one of l whose first key is KEYS[k]. What it has from the beginning is
-- what most windows need: a table that has to grow costs much more.
local function window(l, k)
  if l.kind.keys == 1 then
    return { l = l, state = KEYS[k], left = 0, given = 0, members = false, banned = nil }
  end
  local w = {
    l = l, state = KEYS[k], log = KEYS[k + 1], base = KEYS[k + 2],
    left = 0, given = 0, gone = 0, size = false, members = false,
  }
  return w
end

-- list_windows reads ARGV: the limits, and three bytes for each window: the number of
-- its limit, and (2) of the first of its KEYS, of which it has as many as its kind
-- says. It returns the windows and the place of the next ARGV.
local function list_windows()
  local limits, windows, of = list_limits(), {}, ARGV[2]
  for i = 1, #of / 3 do
    local l, a, b = byte(of, 3 * i - 2, 3 * i)
    windows[i] = window(limits[l], a + b * 256)
  end
  return windows, 3
end

