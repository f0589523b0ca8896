local KINDS = { ['0'] = bucket, ['1'] = fixed, ['2'] = sliding, ['3'] = gcra, ['4'] = bucket, ['5'] = redisson }

-- list_windows makes windows of ARGV[1] times three KEYS and four ARGV, and
-- returns them and the place of the next ARGV.
local function list_windows(now)
  local windows, a = {}, 2
  for i = 1, tonumber(ARGV[1]) do
    windows[i] = {
      now = now, state = KEYS[3 * i - 2], log = KEYS[3 * i - 1], base = KEYS[3 * i],
      kind = KINDS[ARGV[a]], algorithm = tonumber(ARGV[a]),
      rate = tonumber(ARGV[a + 1]), length = tonumber(ARGV[a + 2]), most = tonumber(ARGV[a + 3]),
    }
    a = a + 4
  end
  return windows, a
end

-- read_windows is list_windows that also reads their state, with one MGET.
local function read_windows(now)
  local windows, first = list_windows(now)
  local strings = {}
  for i, w in ipairs(windows) do
    strings[2 * i - 1], strings[2 * i] = w.state, w.base
  end
  if #strings > 0 then
    local got = call('MGET', unpack(strings))
    for i, w in ipairs(windows) do
      local ban = got[2 * i] and string.match(got[2 * i], '^ban:(%d+)$')
      if ban and tonumber(ban) > now then w.banned = ban - now end
      w.kind.open(w, got[2 * i - 1], got[2 * i])
    end
  end
  return windows, first
end

-- tell lets all proxies know that a window may have room. Who may not publish
-- still may give back.
local function tell(w) redis.pcall('PUBLISH', ROOM, int(w.algorithm) .. ':' .. w.state) end

-- fits tells whether cost permits are left. It says no only after looking at what
-- they wait for.
local function fits(w, cost)
  return not w.banned and (cost <= w.kind.left(w) or w.kind.wait(w, cost) == 0)
end

-- decide answers one request: 8 bytes of id, then for each claim the number of its
-- window (2 bytes) and its cost (4 bytes). It takes all claims or none, and
-- appends to the reply: 1 or 0, then for each claim what is left, or -1 if the
-- key is banned, and how long until the same claim passes.
local function decide(windows, request, reply, dry)
  local id, claims, allowed = string.sub(request, 1, 8), {}, true
  for i = 9, #request, 6 do
    local a, b, c, d, e, f = byte(request, i, i + 5)
    local claim = { windows[a + b * 256], c + d * 256 + e * 65536 + f * 16777216 }
    claims[#claims + 1] = claim
    if not fits(claim[1], claim[2]) then allowed = false end
  end
  reply[#reply + 1] = allowed and 1 or 0
  for _, claim in ipairs(claims) do
    local w, cost = claim[1], claim[2]
    if allowed and not dry then w.kind.take(w, id, cost) end
    reply[#reply + 1] = w.banned and -1 or math.max(0, w.kind.left(w))
    reply[#reply + 1] = math.max(w.banned or 0, w.kind.wait(w, cost))
  end
end
