-- straight_bucket is straight for windows of three keys: value, permits and base. A
-- request takes STRIDE bytes.
local olds, sinces, now = {}, {}, int(NOW)
local strings, n = {}, 0
for i = 1, #KEYS, 3 do
  strings[n + 1], strings[n + 2] = KEYS[i], KEYS[i + 2]
  n = n + 2
end
local got, reply, r, from, one = call('MGET', unpack(strings)), { NOW }, 1, 1, nil
--@ begin
for i = 1, #KEYS / 3 do
  local k = 3 * i - 2
  local l, state, log, value, base = byte(of, k), KEYS[k], KEYS[k + 1], got[2 * i - 1], got[2 * i]
  local rate, length, ttl, old, since = rates[l], lengths[l], ttls[l], olds[l], sinces[l]
  local cost, c, d, e = byte(requests, from + 10, from + 13)
  if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
  local usual, allowed, left, wait = false, 0, 0, 0
  --@ decide
  olds[l], sinces[l] = old, since
  if usual then
    reply[r + 1], reply[r + 2], reply[r + 3] = allowed, left < 0 and 0 or left, wait
    r = r + 3
  else
    if not one then
      --@ general
      one = general()
    end
    r = one(l, i, k, from, reply, r, value, base)
  end
  from = from + STRIDE
end
return reply
