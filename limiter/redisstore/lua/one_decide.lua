if fast then
  open()
end
if fast and cost <= left then
  allowed = 1
  take()
end
if fast and cost > left then
  wait()
end
if fast and allowed == 1 then
  write_one()
end
if fast then return { NOW, allowed, left < 0 and 0 or left, later } end
local reply = { NOW }
general(NOW)(1, reply, 1)
return reply
