-- How long a token bucket, or a limit of concurrent permits, has to be waited for, beside the fast path.
-- last_expires is in how many ms the youngest of the permits comes back; 0 if it has.
local function last_expires(w)
  for from = 0, call('ZCARD', w.log), PART do
    local part = call('ZREVRANGE', w.log, from, from + PART - 1, 'WITHSCORES')
    for i = 1, #part, 2 do
      if permits_of(part[i]) > 0 then return math.max(0, tonumber(part[i + 1]) + w.l.length - NOW) end
    end
  end
  return 0
end

-- wait is how many ms it takes until `cost` permits are left; 0 is now.
function functions.wait(w, cost)
  local short = cost - w.left
  if short <= 0 then return 0 end
  if cost >= w.l.rate and w.given == 0 and not w.complete then -- all of very many
    local last = last_expires(w)
    if last > 0 then return last end
  end
  local at, missing = comes_back(w, short, math.huge)
  if at then return at + w.l.length - NOW end
  if missing <= w.given or w.recounted then return w.l.length end -- taken just now
  recount(w) -- value lies
  return functions.wait(w, cost)
end
