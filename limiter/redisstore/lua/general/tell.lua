-- tell lets all proxies know that a window may have room. Who may not publish
-- still may give back.
local function tell(w)
  redis.pcall('PUBLISH', ROOM, int(w.l.algorithm) .. ':' .. w.state .. (w.base and '' or ' ' .. sub(w.l.tag, 2)))
end
