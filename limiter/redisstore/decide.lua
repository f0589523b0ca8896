-- KINDS are the algorithms by their numbers; other files add theirs. SLACK is how
-- long, in ms, keys outlive what they must remember.
local KINDS = { ['0'] = bucket, ['4'] = bucket }
local SLACK = 1000

-- list_windows reads ARGV: the number of limits; five of each limit (algorithm,
-- rate, length in ms, the most of a claim or the steps of a cooldown, time to live in
-- ms); and one byte for each window, the number of its limit. A window has as many KEYS as its kind
-- says. It returns the windows and the place of the next ARGV.
local function list_windows()
  local limits, windows, a = {}, {}, 2
  for i = 1, tonumber(ARGV[1]) do
    local rate, algorithm = tonumber(ARGV[a + 1]), tonumber(ARGV[a])
    limits[i] = {
      kind = KINDS[ARGV[a]], algorithm = algorithm, merges = rate > FULL and algorithm ~= CONCURRENT,
      rate = rate, length = tonumber(ARGV[a + 2]), most = tonumber(ARGV[a + 3]), says = ARGV[a + 3], ttl = ARGV[a + 4],
    }
    a = a + 5
  end
  local of, k = ARGV[a], 1
  for i = 1, #of do
    local l = limits[byte(of, i)]
    windows[i] = {
      l = l, kind = l.kind, first = k, state = KEYS[k], log = KEYS[k + 1], base = KEYS[k + 2],
      left = 0, given = 0, gone = 0, at = NONE, n = NONE, had_base = false, whole = false, fresh = false,
      counted = 0, oldest = false, members = false,
    }
    k = k + l.kind.keys
  end
  return windows, a + 1
end

-- read_windows is list_windows that also reads their state, with one MGET.
local function read_windows()
  local windows, first = list_windows()
  if #windows == 0 then return windows, first end
  local strings = {}
  for i = 1, #windows do
    strings[2 * i - 1], strings[2 * i] = windows[i].state, windows[i].base
  end
  local got = call('MGET', unpack(strings))
  for i = 1, #windows do
    local w, base = windows[i], got[2 * i]
    if base and byte(base) == 98 then -- b of ban
      local ban = tonumber(string.match(base, '^ban:(%d+)$'))
      if ban and ban > NOW then w.banned = ban - NOW end
    end
    w.kind.open(w, got[2 * i - 1], base)
  end
  return windows, first
end

-- fits tells whether cost permits are left. It says no only after looking at what
-- they wait for.
local function fits(w, cost, value)
  return not w.banned and (cost <= w.kind.left(w) or w.kind.wait(w, cost, value) == 0)
end

local asked, costs, values = {}, {}, {} -- of the request that is being decided

-- decide answers one request: 8 bytes of id, then for each claim the number of its
-- window (2 bytes) and its cost (4 bytes), and a value (8 bytes) where its kind is
-- one of values. It takes all claims or none, and appends to the reply: 1 or 0, then for each claim what is left, or -1 if the
-- key is banned, and how long until the same claim passes.
local function decide(windows, request, reply, dry)
  local n, allowed = 0, true
  local i = 9
  while i < #request do
    local a, b, c, d, e, f = byte(request, i, i + 5)
    local w, cost, value = windows[a + b * 256], c + d * 256 + e * 65536 + f * 16777216, nil
    i = i + 6
    if w.kind.valued then
      value = string.sub(request, i, i + 7)
      i = i + 8
    end
    n = n + 1
    asked[n], costs[n], values[n] = w, cost, value
    if not fits(w, cost, value) then allowed = false end
  end
  local id, r = string.sub(request, 1, 8), #reply + 1
  reply[r] = allowed and 1 or 0
  for i = 1, n do
    local w, cost, value = asked[i], costs[i], values[i]
    if allowed and not dry then w.kind.take(w, id, cost, value) end
    local left = w.kind.left(w)
    if w.banned then
      reply[r + 2 * i - 1], reply[r + 2 * i] = -1, math.max(w.banned, w.kind.wait(w, cost, value))
    else
      reply[r + 2 * i - 1] = left > 0 and left or 0
      reply[r + 2 * i] = left >= cost and 0 or w.kind.wait(w, cost, value)
    end
  end
end
