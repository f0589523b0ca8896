-- How long a token bucket, or a limit of concurrent permits, has to be waited for, beside the fast path.
-- more reads the next few entries, oldest first; false when there are none.
local function more(w)
  if w.complete then return false end
  local read = w.read or w.gone
  local size = math.max(8, read - w.gone)
  local part = call('ZRANGE', w.log, read, read + size - 1, 'WITHSCORES')
  w.read = read + #part / 2
  w.complete = #part < 2 * size
  for i = 1, #part, 2 do
    local at, n = tonumber(part[i + 1]), permits_of(part[i])
    if at > NOW then
      recount(w)
      return true
    end
    if n > 0 then w.at[#w.at + 1], w.n[#w.n + 1] = at, n end
  end
  return #part > 0
end

-- last_expires is in how many ms the youngest of the permits comes back; 0 if it has, or the clock was set back.
local function last_expires(w)
  for from = 0, call('ZCARD', w.log), PART do
    local part = call('ZREVRANGE', w.log, from, from + PART - 1, 'WITHSCORES')
    for i = 1, #part, 2 do
      local at = tonumber(part[i + 1])
      if at > NOW then return 0 end
      if permits_of(part[i]) > 0 then return math.max(0, at + w.l.length - NOW) end
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
  if not w.at then
    recount(w)
    return functions.wait(w, cost)
  end
  local i = 1
  while true do
    while i > #w.at do
      if not more(w) then break end
      if w.recounted then return functions.wait(w, cost) end
    end
    if i > #w.at then break end
    short = short - w.n[i]
    if short <= 0 then return w.at[i] + w.l.length - NOW end
    i = i + 1
  end
  -- What is still missing was taken just now, or value lies: count again.
  if short > w.given and not w.recounted then
    recount(w)
    return functions.wait(w, cost)
  end
  return w.l.length
end

