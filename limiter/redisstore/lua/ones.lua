-- ones decides a request that several.lua found to be unusual: of n claims on the
-- windows behind the base-th. It begins at `from`; the answer goes behind `to`. It
-- returns where the next one begins, and the new end of the reply.
local limits = list_limits()
return function(base, n, from, reply, to)
  local windows = {}
  for i = base + 1, base + n do
    local l, a, b = byte(of, 3 * i - 2, 3 * i)
    local w = window(limits[l], a + b * 256)
    local read = call('MGET', w.state, w.base or w.state)
    try(w, read[1], read[2])
    windows[i] = w
  end
  local next, last = decide(windows, requests, from, reply, to, false)
  for i = base + 1, base + n do
    if not windows[i].bad then windows[i].l.kind.keep(windows[i]) end
  end
  return next, last
end
