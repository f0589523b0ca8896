
-- mget is MGET for keys of several slots. What GET fails on is of another type, or not here, which only MGET tells apart.
local function mget(keys)
  local got = {}
  for i = 1, #keys do
    local v = redis.pcall('GET', keys[i])
    if type(v) == 'table' then v = call('MGET', keys[i])[1] end
    got[i] = v
  end
  return got
end
