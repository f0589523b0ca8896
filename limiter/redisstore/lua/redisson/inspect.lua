-- inspect says how a limiter stands, and writes nothing. Each entry that has expired
-- and was not read is taken to hold one permit.
-- reply  time (ms), what is left, and how many ms until one more is left, and until
--        all are; the rate, and its length in ms
return run(function()
  local w = limiter()
  open(w, w.rate)
  if w.expired then
    w.left = w.left + call('ZCOUNT', w.log, '-inf', int(NOW - w.length)) - w.gone
    w.expired = false
  end
  local left = math.max(0, math.min(w.left, w.rate))
  local next, full = 0, 0
  if left < w.rate then next, full = wait(w, left + 1), wait(w, w.rate) end
  return { NOW, left, next, full, w.rate, w.length }
end)
