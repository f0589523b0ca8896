-- clock returns Redis's own time in whole milliseconds: the only clock that all
-- proxies share.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
