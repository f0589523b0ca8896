if fast then
  open()
end
decide_claim()
if fast and allowed == 1 then
  write()
end
if fast then return { NOW, allowed, left < 0 and 0 or left, later } end
local reply = { NOW }
general(NOW)(1, reply, 1)
return reply
