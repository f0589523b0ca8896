-- refund gives back what one decision took, or a part of it, once.
-- ARGV   5 the decision's id, 6 its time (ms), 7 how many permits, 8 of how many
-- reply  how many permits were given back
return run(function()
  local given = refund(limiter(), ARGV[5], tonumber(ARGV[7]), tonumber(ARGV[6]), tonumber(ARGV[8]))
  if given > 0 then publish_change() end
  return given
end)
