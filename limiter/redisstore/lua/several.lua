-- several is take for requests of several claims, each one on windows of its own, all of
-- one algorithm: one request after another, straight on, without what only others need.
-- KEYS, ARGV, reply  as for take
-- The whole script is one step for everybody else.
local from, base, one = 1, 0, nil
while from <= #requests do
  --@ request
  from, base = next, base + n
end
return reply
