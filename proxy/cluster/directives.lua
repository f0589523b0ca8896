-- KEYS[1] hash: name of a directive -> milliseconds at which it ends, a blank, and the directive
-- KEYS[2] string: milliseconds of the last change
-- ARGV    how many there may be, milliseconds that KEYS[2] is kept, the last change that the node knows, the one that it
--         knows Redis to have, then for each change the name, how many ms the directive lasts from now (0 ends it), and
--         the directive
-- reply   milliseconds now, those of the last change before this call and of the last one now, with blanks between;
--         then those values of the hash that hold
-- One step, by Redis's clock: the changes, and the end of those that are over. If the node knows a later change
-- than Redis did before, Redis has lost some: no change is made until the node knows that, which a later change would hide.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local before = redis.call('GET', KEYS[2]) or '0'
local changed, last = before, #ARGV
if tonumber(before) < tonumber(ARGV[3]) and before ~= ARGV[4] then last = 4 end
if last > 4 then
  changed = string.format('%.0f', math.max(now, before + 1, ARGV[3] + 1))
  redis.call('SET', KEYS[2], changed, 'PX', ARGV[2])
end
for i = 5, last, 3 do
  if ARGV[i + 1] == '0' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  elseif redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 or redis.call('HLEN', KEYS[1]) < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], ARGV[i], string.format('%.0f ', now + ARGV[i + 1]) .. ARGV[i + 2])
  end -- for one too many there is no room: the reply does not have it
end
local all, reply, life = redis.call('HGETALL', KEYS[1]), {string.format('%.0f ', now) .. before .. ' ' .. changed}, now
for i = 1, #all, 2 do
  local ends = tonumber(string.match(all[i + 1], '^(%d+) '))
  if not ends or ends <= now then
    redis.call('HDEL', KEYS[1], all[i])
  else
    life = math.max(life, ends)
    reply[#reply + 1] = all[i + 1]
  end
end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life - now + 1))
return reply
