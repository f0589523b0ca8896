-- grant gives permits on top, as if the latest had not been taken.
-- ARGV   5 how many
-- reply  how many of them another call must give: each does a bounded part
return run(function()
  local rest = grant(limiter(), tonumber(ARGV[5]))
  publish_change()
  return rest
end)
