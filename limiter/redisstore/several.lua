-- several is take for requests of several claims, each one on windows of its own, all of
-- one algorithm: one request after another, straight on, without what only others need.
-- KEYS, ARGV, reply  as for take
-- The whole script is one step for everybody else.
local from, base, one = 1, 0, nil
while from <= #requests do
  local n, to, next = byte(requests, from), r, nil
  local read_all, usual = pcall(fetch, base, n)
  if read_all and usual then
    next = answer(from, base)
    usual = fits(n)
  end
  if read_all and usual then
    store()
  else
    if not one then
      --@ general
      one = general()
    end
    next, r = one(base, n, from, reply, to)
  end
  from, base = next, base + n
end
return reply
