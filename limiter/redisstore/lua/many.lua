-- many decides requests one after another, of one or several claims each, all of one algorithm.
-- general decides a request for which fast is false.
-- KEYS, ARGV, reply  as for command/take.lua
local decide_unusual
while from <= #requests do
  claims, fast, id = byte(requests, from), true, from + 2
  if claims == 1 then
    decide_one()
  else
    read_claims()
    decide_several()
  end
  if fast then
    replied = replied + 1 + 2 * claims
  else
    release()
    write_all()
    decide_unusual = decide_unusual or general(NOW)
    replied = decide_unusual(from, reply, replied)
    for j = 1, claims do
      local k = claims == 1 and key_number or keys[j]
      strings[k] = call('MGET', KEYS[k])[1]
    end
  end
  from = from + 10 + 6 * claims
end
release()
write_all()
return reply
