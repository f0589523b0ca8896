-- again is take for requests over windows of one algorithm, of which some are asked for
-- again and again: all are read before, and written behind, all decisions.
-- KEYS, ARGV, reply  as for take
-- The whole script is one step for everybody else.
local from, read_all, usual = 1, pcall(fetch, 0, #of / 3)
if not read_all or not usual then return general() end
while from <= #requests do from = answer(from, 0) end
if not fits(#of / 3) then return general() end -- nothing is written yet
store()
return reply
