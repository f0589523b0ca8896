-- set gives a Redisson limiter a config.
-- ARGV   try | set | update; rate, interval (ms), type, keepAliveTime (ms)
--        try: only if there is none. set: and forget what was taken. update: only
--        if there is one; what was taken stays taken.
-- reply  1 if the config was written, else 0
local before = handle()
if ARGV[1] == 'try' and before or ARGV[1] == 'update' and not before then return 0 end
local w = config(2)
if ARGV[1] == 'set' or before and before.type ~= w.type then
  call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
end
for _, key in ipairs({ w.hash, w.state, w.log }) do call('PERSIST', key) end
configure(w)
if ARGV[1] == 'update' and call('EXISTS', w.log) == 1 then
  recount(w)
  call('SET', w.state, int(math.max(0, w.left)), 'KEEPTTL')
end
if w.keep_alive > 0 then expire(w) end
return 1
