-- How windows of three keys are read, see straight.lua and lone.lua: value, of which
-- `state` is the text, permits and base. A request takes STRIDE bytes.
--@ read strings
local strings, n = {}, 0
for i = 1, #KEYS, 3 do
  strings[n + 1], strings[n + 2] = KEYS[i], KEYS[i + 2]
  n = n + 2
end
local got = call('MGET', unpack(strings))
--@ read all
local olds, sinces, now = {}, {}, int(NOW)
  --@ read strings
--@ window
local k = 3 * i - 2
local l, key, log, state, base = byte(of, k), KEYS[k], KEYS[k + 1], got[2 * i - 1], got[2 * i]
local rate, length, ttl, old, since = rates[l], lengths[l], ttls[l], olds[l], sinces[l]
--@ keep times
olds[l], sinces[l] = old, since
--@ read one
local key, log, now, old, since = KEYS[1], KEYS[2], int(NOW), nil, nil
local got = call('MGET', key, KEYS[3])
local state, base = got[1], got[2]
--@ since
if not old then
  old = int(NOW - length)
  since = '(' .. old
end
