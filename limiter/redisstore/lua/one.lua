-- one decides a request that a straight script found to be unusual: the i-th, on the
-- window of the limit l whose first key is KEYS[k], with what was read of it. It
-- begins at `from`; the answer goes behind `to`, of which the new end is returned.
local limits = list_limits()
return function(l, i, k, from, reply, to, state, base)
  local w = window(limits[l], k)
  try(w, state, base)
  local _, last = decide({ [i] = w }, requests, from, reply, to, false)
  if not w.bad then w.l.kind.keep(w) end
  return last
end
