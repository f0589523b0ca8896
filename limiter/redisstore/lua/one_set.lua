-- one_set is one.lua for a window of three keys.
-- KEYS, ARGV, reply  as for command/take.lua
read_limit()
read_cost()
local allowed, got = 0, call('MGET', KEYS[1], KEYS[3])
key, log, value, fast, later = KEYS[1], KEYS[2], got[1], not got[2], 0
if fast then
  open()
end
if fast and cost <= left then
  allowed = 1
  take()
end
if fast and cost > left then
  wait()
end
if fast and allowed == 1 then
  write()
end
if fast then return { NOW, allowed, left < 0 and 0 or left, later } end
local reply = { NOW }
general(NOW)(1, reply, 1)
return reply
