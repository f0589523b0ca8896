-- refund gives back what decisions took, each once.
-- KEYS, ARGV  as for take, but for requests decisions: of how many windows (1 byte), when in ms (6),
--             the ID (8), and for each window the cost (4) and the window's number (2)
-- reply       for each decision how many permits were given back in all, -1 if something cannot be read
local decisions, from, reply = ARGV[3], 1, {}
while from <= #decisions do
  local windows, at, id, given = byte(decisions, from), number(decisions, from + 1, 6), sub(decisions, from + 7, from + 14), 0
  from = from + 15
  for _ = 1, windows do
    local n = refund(window(number(decisions, from + 4, 2)), id, number(decisions, from, 4), at)
    given, from = n and given >= 0 and given + n or -1, from + 6
  end
  reply[#reply + 1] = given
end
publish_changes()
return reply
