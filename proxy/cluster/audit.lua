-- KEYS[1] stream: what operators did
-- ARGV    an entry, as JSON; milliseconds that entries are kept; the most entries
-- reply   the id of the entry
-- Entries go by Redis's clock. The stream goes with the last of them.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local id = redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[3], '*', 'entry', ARGV[1])
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f', now - ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return id
