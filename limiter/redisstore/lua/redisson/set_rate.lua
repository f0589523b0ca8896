-- set gives a limiter a config.
-- ARGV   5 try | set | update; 6 to 9 rate, interval (ms), type, keepAliveTime (ms)
--        try: only if there is none. set: and forget what was taken, whatever was
--        there. update: only if there is one; what was taken stays taken.
-- reply  1 if the config was written, else 0
local function set()
  local how, before = ARGV[5], {}
  local had = how ~= 'set' and configured(before)
  if how == 'try' and had or how == 'update' and not had then return 0 end
  local rate, length, kind, alive = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
  local w = placed({ rate = rate, length = length, type = kind, keep_alive = alive })
  if had and before.type == w.type then
    open(placed(before), before.rate)
    keep(before)
    if before.counting then
      call('UNLINK', w.state)
    else
      call('SET', w.state, int(before.left + w.rate - before.rate), 'KEEPTTL')
    end
  else
    call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  end
  if how == 'set' then call('UNLINK', KEYS[1]) end
  local ttl = call('PTTL', w.state)
  for _, key in ipairs({ KEYS[1], w.state, w.log }) do call('PERSIST', key) end
  configure(w)
  if w.keep_alive > 0 then expire(w) end
  if ARGV[4] == 'window' then -- of which value is a counter that ends
    call('PEXPIRE', w.state, int(ttl < 0 and length or math.max(1, math.min(ttl, length))))
  end
  publish_change()
  return 1
end

return run(set)
