-- left says how many permits of a limiter are left, and writes nothing.
-- reply  the number
return run(function()
  local w = opened()
  return math.max(0, math.min(w.left, w.rate))
end)
