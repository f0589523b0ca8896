-- tell lets all proxies know that a window may have room. Who may not publish
-- still may give back. Of what Redisson shares nobody remembers refusals.
local function tell(w)
  if w.l.kind ~= redisson then redis.pcall('PUBLISH', ROOM, int(w.l.algorithm) .. ':' .. w.state) end
end
