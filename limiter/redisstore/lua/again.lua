-- again is take for requests over windows of one algorithm, of which some are asked for
-- again and again: all are read before, and written behind, all decisions.
-- KEYS, ARGV, reply  as for take
-- The whole script is one step for everybody else.
local from, read_all, usual = 1, pcall(fetch, 0, #of / 3)
if read_all and usual then
  while from <= #requests do from = answer(from, 0) end
  if fits(#of / 3) then
    store()
    return reply
  end
end
--@ general
return general() -- nothing is written yet
