-- KEYS[1] stream: what operators did
-- ARGV    an entry, as JSON; milliseconds that entries are kept; the most entries
-- reply   the id of the entry
-- Entries go by Redis's clock. The stream goes with the last of them. A node that has got no reply writes its entry
-- again: it is there once.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local latest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 100)
for i = 1, #latest do
  if latest[i][2][2] == ARGV[1] then return latest[i][1] end
end
local id = redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[3], '*', 'entry', ARGV[1])
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f', now - ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return id
