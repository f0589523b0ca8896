-- KEYS[1]  the lock's hash, as in read_lock.lua
-- ARGV     the mode to end, PUBLISH or SPUBLISH, channel, message, what the keys
--          of single holds begin with
-- reply    n: it was held, n listeners were told; {}: it was not, in this mode
-- atomic   the hash and the keys of all holds together
local fields = redis.call('HGETALL', KEYS[1])
local mode, holds = nil, {}
for f = 1, #fields, 2 do
  if fields[f] == 'mode' then
    mode = fields[f + 1]
  else
    for i = 1, tonumber(fields[f + 1]) do
      holds[#holds + 1] = ARGV[5] .. ':' .. fields[f] .. ':rwlock_timeout:' .. i
    end
  end
end
if mode ~= ARGV[1] then return {} end
redis.call('DEL', KEYS[1])
for _, key in ipairs(holds) do redis.call('DEL', key) end
local told = redis.call(ARGV[2], ARGV[3], ARGV[4])
if ARGV[4] == '1' then redis.call(ARGV[2], ARGV[3], '0') end -- as write_unlock.lua says
return told
