-- left says how many permits of a limiter are left, and writes nothing. Each entry
-- that has expired and was not read is taken to hold one.
-- reply  the number
return run(function()
  local w = limiter()
  open(w, w.rate)
  if w.expired then
    local more = call('ZCOUNT', w.log, '-inf', int(NOW - w.length)) - w.gone
    w.left = math.min(w.left + more, w.rate)
  end
  return math.max(0, w.left)
end)
