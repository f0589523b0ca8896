-- decide decides requests, one after another, each wholly or not at all.
-- ARGV   5 the requests, 12 bytes each: id (8) and permits (4)
-- reply  time (ms); then for each request 1 or 0, what is left, and the wait (ms)
--        until the same request passes; or an error of redisson.lua; or COST for
--        who goes by the hash and wants more than it has
local function decide(is_dry)
  local w, requests, need = limiter(), ARGV[5], 0
  for i = 1, #requests, 12 do need = need + number(requests, i + 8, 4) end
  if ARGV[1] == '' and need > w.rate then refuse('COST ' .. int(w.rate)) end
  open(w, need)
  local reply = { NOW }
  for i = 1, #requests, 12 do
    local n, k = number(requests, i + 8, 4), #reply
    local time = wait(w, n)
    reply[k + 1] = time == 0 and 1 or 0
    if time == 0 and not is_dry then
      take(w, sub(requests, i, i + 7), n)
      time = wait(w, n)
    end
    reply[k + 2], reply[k + 3] = math.max(0, w.left), time
  end
  if not is_dry then keep(w) end
  return reply
end

-- opened is the limiter as it stands. Each entry that has expired and was not read is
-- taken to hold one permit.
local function opened()
  local w = limiter()
  open(w, w.rate)
  if w.expired then
    w.left, w.expired = w.left + call('ZCOUNT', w.log, '-inf', int(NOW - w.length)) - w.gone, false
  end
  return w
end
