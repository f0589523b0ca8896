-- publish_change says to all processes that a window may have room. A user who may not publish
-- may still give back.
local function publish_change(w)
  redis.pcall('PUBLISH', FREED, int(w.l.algorithm) .. ':' .. w.state .. (w.base and '' or ' ' .. sub(w.l.tag, 2)))
end
