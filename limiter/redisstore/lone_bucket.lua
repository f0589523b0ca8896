-- lone_bucket is lone for windows of three keys: value, permits and base.
--@ limit
local state, log, now, old, since = KEYS[1], KEYS[2], int(NOW), nil, nil
local got = call('MGET', state, KEYS[3])
local value, base = got[1], got[2]
--@ begin
--@ decide
if usual then return { NOW, allowed, left < 0 and 0 or left, wait } end
--@ general
local reply = { NOW }
general()(1, 1, 1, 1, reply, 1, value, base)
return reply
