-- one decides one request of one claim, whose window is alone in its packed string or new. If
-- something is unusual, nothing is written, and general decides.
-- KEYS, ARGV, reply  as for command/take.lua
read_limit()
read_cost()
local key, allowed = KEYS[1], 0
packed, fast, later = call('MGET', key)[1], true, 0
if packed then
  first, last = #field + 1, #packed
  fast = sub(packed, 1, #field) == field
end
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
  save()
  if packed then
    call('SET', key, state, 'PX', ttl)
  else -- a key of another type looks like none in an MGET
    fast = call('SET', key, state, 'PX', ttl, 'NX')
  end
end
if fast then return { NOW, allowed, left < 0 and 0 or left, later } end
local reply = { NOW }
general(NOW)(1, reply, 1)
return reply
