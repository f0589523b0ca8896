-- decide_request decides one request that a fast script found to be unusual: the one at
-- `from`. Its windows are read anew. The reply goes behind `to`; the new end is returned.
return function(from, reply, to)
  local n, size, windows, asked = byte(all_requests, from), 6, {}, {}
  strings = {} -- what was read for the request before may have changed
  if algorithms[DISTINCT] then size = 14 end -- with a value
  for i = 1, n do
    local x, y = byte(all_requests, from + size * (i - 1) + 14, from + size * (i - 1) + 15)
    local w = window(x + y * 256)
    local got = call('MGET', w.state, w.cached_sum or w.state)
    read_window(w, got[1], w.cached_sum and got[2])
    windows[x + y * 256], asked[i] = w, w
  end
  local _, last = decide(windows, from, reply, to, false)
  for i = 1, n do
    if not asked[i].bad then asked[i].algorithm.keep(asked[i]) end
  end
  return last
end
