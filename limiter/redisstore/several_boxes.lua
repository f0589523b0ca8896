-- several is take for requests of several claims, each one on windows of its own, all of
-- one algorithm: one request after another, straight on, without what only others need.
-- KEYS, ARGV, reply  as for take
-- The whole script is one step for everybody else.
local from, base = 1, 0
local one, fetch, answer, fits, store
local function go()
  while from <= #requests do
    local n = byte(requests, from)
    local next = plain(from, base, n)
    if not next then return end
    from, base = next, base + n
  end
end

while true do
  pcall(go) -- if it fails, by what it read, or stops, the request at from needs more
  if from > #requests then return reply end
  if not fetch then
    --@ others
    fetch, answer, fits, store = others()
  end
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
    local x, y = byte(of, 3 * (base + n) - 1, 3 * (base + n))
    key = x + y * 256
  end
  from, base = next, base + n
end
