-- How a limit of distinct values decides one request, see straight.lua and keys_bucket.lua. What is of
-- another kind than usual: a value that was used twice, whose first use is put aside; a log
-- of many.
--@ begin
local STRIDE, SOME = 24, 64
--@ decide
if not base then
  --@ since
  local uses = redis.pcall('ZRANGEBYSCORE', log, since, '+inf')
  local own, standing, times, last = sub(requests, from + 16, from + 23), 0, 0, {}
  usual = not uses.err and #uses <= SOME and (#uses == 0 or call('ZCOUNT', log, '(' .. now, '+inf') == 0)
  for i = 1, usual and #uses or 0 do
    if #uses[i] ~= 16 then
      usual = false
      break
    end
    local v = sub(uses[i], 1, 8)
    if not last[v] then standing = standing + 1 end
    last[v] = i
    if v == own then times = times + 1 end
  end
  left = rate - standing
  if usual and (times > 0 or cost <= left) then
    usual, allowed = times < 2, 1
    if times == 0 then left = left - 1 end
    if usual then
      call('ZREMRANGEBYSCORE', log, '-inf', old)
      call('ZADD', log, now, own .. sub(requests, from + 2, from + 9))
      call('PEXPIRE', log, ttl)
    end
  elseif usual then
    local short, i = cost - left, 0
    while short > 0 do -- a value stands until one length after its last use
      i = i + 1
      if last[sub(uses[i], 1, 8)] == i then short = short - 1 end
    end
    wait = tonumber(call('ZSCORE', log, uses[i])) + length - NOW
  end
end
