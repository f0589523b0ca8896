-- lone is straight for one request: without tables, which cost more than its decision.
-- KEYS, ARGV, reply  as for straight
-- The whole script is one step for everybody else.
--@ limit
--@ read one
--@ begin
--@ decide
if usual then return { NOW, allowed, left < 0 and 0 or left, wait } end
--@ general
local reply = { NOW }
general()(1, 1, 1, 1, reply, 1, state, base)
return reply
