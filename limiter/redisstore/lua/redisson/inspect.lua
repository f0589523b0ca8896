-- inspect says how a limiter stands, and writes nothing.
-- reply  time (ms), what is left, and how many ms until one more is left, and until
--        all are; the rate, and its length in ms
return run(function()
  local w = opened()
  local left = math.max(0, math.min(w.left, w.rate))
  local next, full = 0, 0
  if left < w.rate then next, full = wait(w, left + 1), wait(w, w.rate) end
  return { NOW, left, next, full, w.rate, w.length }
end)
