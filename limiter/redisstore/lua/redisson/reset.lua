-- reset forgets what is counted, and heals keys of the wrong type. A config that
-- can be used stays.
-- reply  1
return run(function()
  local w = {}
  local usable, found = pcall(configured, w)
  if not usable then call('UNLINK', KEYS[1]) end
  if not usable or not found then w.type = tonumber(ARGV[3]) end
  placed(w)
  call('UNLINK', w.state, w.log)
  publish_change()
  return 1
end)
