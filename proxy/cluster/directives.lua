-- KEYS[1] hash: name of a directive -> milliseconds at which it ends, a blank, and the directive
-- ARGV    how many there may be, then for each change the name, how many ms the directive lasts from
--         now (0 ends it), and the directive
-- reply   milliseconds now, then of each that holds the milliseconds at which it ends, and the directive
-- One step, by Redis's clock: the changes, and the end of those that are over.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for i = 2, #ARGV, 3 do
  if ARGV[i + 1] == '0' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  elseif redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 or redis.call('HLEN', KEYS[1]) < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], ARGV[i], string.format('%.0f ', now + ARGV[i + 1]) .. ARGV[i + 2])
  end -- for one too many there is no room: the reply does not have it
end
local all, reply, last = redis.call('HGETALL', KEYS[1]), {string.format('%.0f', now)}, now
for i = 1, #all, 2 do
  local ends, text = string.match(all[i + 1], '^(%d+) (.*)$')
  if not ends or tonumber(ends) <= now then
    redis.call('HDEL', KEYS[1], all[i])
  else
    last = math.max(last, tonumber(ends))
    reply[#reply + 1], reply[#reply + 2] = ends, text
  end
end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', last - now + 1))
return reply
