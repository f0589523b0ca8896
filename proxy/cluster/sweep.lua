-- sweep deletes keys of limits that are no more.
-- KEYS[1,2]  the hash that says who leads, the zset of removed limits; both are
--            left out where the keys lie on another server than these
-- KEYS       then for each key: its name as Redisson's limiter, and the key
-- ARGV       the token, or '' when KEYS[1,2] are left out; until when (ms) this is
--            allowed; then of each key its limit, ROUTE.LIMIT
-- reply      how many are gone; -1: it is too late; -2: another leads
-- One step: a limit that is defined again loses nothing any more, and what Java
-- programs share, which has a hash, is left alone.
local first, token = 1, ARGV[1]
if token ~= '' then
  first = 3
  if redis.call('HGET', KEYS[1], 'token') ~= token then return -2 end
end
local t = redis.call('TIME')
if t[1] * 1000 + math.floor(t[2] / 1000) > tonumber(ARGV[2]) then return -1 end
local gone = 0
for k = first, #KEYS, 2 do
  local removed = first == 1 or redis.call('ZSCORE', KEYS[2], ARGV[3 + (k - first) / 2])
  if removed and redis.call('EXISTS', KEYS[k]) == 0 then gone = gone + redis.call('UNLINK', KEYS[k + 1]) end
end
return gone
