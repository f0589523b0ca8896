-- KEYS[1] hash: number, hash and node of the configuration taken up last, and
--         number (pushed) of the one pushed last
-- KEYS[2] hash: limit -> its definition
-- KEYS[3] sorted set: limit -> milliseconds when it left the definitions
-- KEYS[4] list: what was pushed, the last first
-- ARGV    the number and the first of the list that were found there, or '' each;
--         the number that is to be there, the hash or '' to leave it, id of the
--         node, 1 if it was pushed, milliseconds that configurations are remembered,
--         how many entries of the list follow, these, the last first, and of each
--         limit its name and its definition, none to leave them
-- reply   1 if this was done, 0 if something else is there than was found
-- One step: what a node still knows takes the place of what Redis has lost.
if (redis.call('HGET', KEYS[1], 'number') or '') ~= ARGV[1] or (redis.call('LINDEX', KEYS[4], 0) or '') ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'number', ARGV[3], 'node', ARGV[5])
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'hash', ARGV[4])
end
if ARGV[6] == '1' then
  redis.call('HSET', KEYS[1], 'pushed', ARGV[3])
end
redis.call('PEXPIRE', KEYS[1], ARGV[7])
local entries = tonumber(ARGV[8])
if entries > 0 then
  for i = 1, entries do
    redis.call('RPUSH', KEYS[4], ARGV[8 + i])
  end
  redis.call('LTRIM', KEYS[4], -entries, -1)
  redis.call('PEXPIRE', KEYS[4], ARGV[7])
end
if #ARGV > 8 + entries then
  define(KEYS[2], KEYS[3], 9 + entries, ARGV[7])
end
return 1
