-- several_boxes is several for windows in boxes: a request that plain decides is not read
-- any further.
-- KEYS, ARGV, reply  as for take
-- The whole script is one step for everybody else.
local from, base = 1, 0
local one, fetch, answer, fits, store
local function go()
  while from <= #requests do
    --@ count claims
    local next = plain(from, base, n, like)
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
  --@ request
  from, base = next, base + n
  local x, y = byte(of, 3 * base - 1, 3 * base)
  key = x + y * 256
end
