-- lead writes down who leads from now on.
-- KEYS   the lock of the lead: a hash of owners; the hash that says who leads
-- ARGV   owner, node, how long what is written lives (ms)
-- reply  token, time (ms)
-- One step: only whoever holds the lock gets a token, and each is larger than all
-- before, also when Redis has forgotten them, because none is below its clock.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return redis.error_reply('DEPOSED the lock of the lead is not held')
end
local last = tonumber(redis.call('HGET', KEYS[2], 'token')) or 0
local token = math.max(last + 1, now)
redis.call('HSET', KEYS[2], 'token', string.format('%.0f', token), 'node', ARGV[2], 'since', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return { token, now }
