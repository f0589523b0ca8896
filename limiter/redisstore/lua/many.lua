-- many decides requests one after another, of one or several claims each, all of one algorithm.
-- general decides a request for which fast is false.
-- KEYS, ARGV, reply  as for command/take.lua
local decide_unusual
while from <= #requests do
  claims, fast, id = byte(requests, from), true, from + 2
  decide_request()
  if fast then
    replied = replied + 1 + 2 * claims
  else
    write_back()
    decide_unusual = decide_unusual or general(NOW)
    replied = decide_unusual(from, reply, replied)
    read_again()
  end
  from = from + 10 + CLAIM_SIZE * claims
end
write_back()
return reply
