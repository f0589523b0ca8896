-- many_set is many.lua for windows of three keys, each of which one request asks for.
-- KEYS, ARGV, reply  as for command/take.lua
local rates, lengths, ttls = {}, {}, {}
while limit_at <= #limits_text do
  read_limit()
  rates[#rates + 1], lengths[#rates + 1], ttls[#rates + 1] = rate, length, ttl
end

local strings = {}
for i = 1, #KEYS / 3 do strings[2 * i - 1], strings[2 * i] = KEYS[3 * i - 2], KEYS[3 * i] end
local got, windows, reply, replied = mget(strings), ARGV[2], { NOW }, 1
local from, limit_in_use, decide_unusual = 1, 0, nil
-- Of each claim of a request of several: the numbers of its first key and of its limit, what is
-- left before it, and what take said.
local keys, limits, lefts, states, trims = {}, {}, {}, {}, {}
while from <= #requests do
  local claims, allowed, to = byte(requests, from), 1, replied + 1
  fast, id, claim, reply[to] = true, from + 2, from + 10, 1
  for j = 1, claims do
    local c, d, e, x, y
    cost, c, d, e, x, y = byte(requests, claim, claim + 5)
    if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
    x = x + y * 256
    local k = 3 * x - 2 -- of its first key, and of what windows says of it
    limit = byte(windows, k)
    if limit ~= limit_in_use then rate, length, ttl, limit_in_use = rates[limit], lengths[limit], ttls[limit], limit end
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
  if not fast then
    decide_unusual = decide_unusual or general(NOW)
    replied = decide_unusual(from, reply, replied)
  else
    if allowed == 1 and claims == 1 then
      write()
    elseif allowed == 1 then
      for j = 1, claims do
        local k = keys[j]
        limit = limits[j]
        key, log, state, trim, left = KEYS[k], KEYS[k + 1], states[j], trims[j], reply[replied + 2 * j]
        length, ttl, limit_in_use = lengths[limit], ttls[limit], 0
        write()
      end
    else
      reply[replied + 1] = 0
      for j = 1, claims > 1 and claims or 0 do -- what was taken is not
        if keys[j] then reply[replied + 2 * j], reply[replied + 2 * j + 1] = lefts[j], 0 end
      end
    end
    replied = replied + 1 + 2 * claims
  end
  from = from + 10 + CLAIM_SIZE * claims
end
return reply
