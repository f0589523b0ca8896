-- How many.lua decides a request of windows of three keys, each of which one request asks for.
local strings = {}
for i = 1, #KEYS / 3 do strings[2 * i - 1], strings[2 * i] = KEYS[3 * i - 2], KEYS[3 * i] end
local got = mget(strings)
-- Of each claim of a request of several: the numbers of its first key and of its limit, what is
-- left before it, and what take said.
local keys, limits, lefts, states, trims = {}, {}, {}, {}, {}
local function decide_request()
  local to = replied + 1
  allowed, claim, reply[to] = 1, from + 10, 1
  for j = 1, claims do
    local c, d, e, x, y
    cost, c, d, e, x, y = byte(requests, claim, claim + 5)
    if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
    x = x + y * 256
    local k = 3 * x - 2 -- of its first key, and of what windows says of it
    limit = byte(windows, k)
    if limit ~= limit_in_use then
      use_limit()
    end
    key, log, value, fast, later = KEYS[k], KEYS[k + 1], got[2 * x - 1], not got[2 * x], 0
    if fast then
      open()
    end
    if not fast then break end
    if claims > 1 then lefts[j], keys[j] = left, false end
    if cost > left then
      allowed = 0
    elseif allowed == 1 then
      take()
      if claims > 1 then keys[j], limits[j], states[j], trims[j] = k, limit, state, trim end
    end
    if fast and cost > left then
      wait()
    end
    if not fast then break end
    reply[to + 1], reply[to + 2] = left < 0 and 0 or left, later
    to, claim = to + 2, claim + CLAIM_SIZE
  end
  if fast and allowed == 1 and claims == 1 then
    write()
  elseif fast and allowed == 1 then
    for j = 1, claims do
      local k = keys[j]
      limit = limits[j]
      key, log, state, trim, left = KEYS[k], KEYS[k + 1], states[j], trims[j], reply[replied + 2 * j]
      length, ttl, limit_in_use = lengths[limit], ttls[limit], 0
      write()
    end
  elseif fast then
    reply[replied + 1] = 0
    for j = 1, claims > 1 and claims or 0 do -- what was taken is not
      if keys[j] then reply[replied + 2 * j], reply[replied + 2 * j + 1] = lefts[j], 0 end
    end
  end
end

-- What was taken is written at once.
local function write_back() end
local function read_again() end
