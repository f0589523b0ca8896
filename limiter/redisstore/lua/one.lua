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

local function write()
  save()
  if packed then
    call('SET', key, state, 'PX', ttl)
  else -- a key of another type looks like none in an MGET
    fast = call('SET', key, state, 'PX', ttl, 'NX')
  end
end
