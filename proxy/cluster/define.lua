-- define makes the pairs of name and definition that begin at ARGV[first] the
-- definitions of limits, notes which have left them, and lets both live so many
-- milliseconds.
local function define(limits, removed, first, life)
  local t = redis.call('TIME')
  local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
  local names = redis.call('HKEYS', limits)
  for i = 1, #names do
    redis.call('ZADD', removed, now, names[i])
  end
  redis.call('DEL', limits)
  for i = first, #ARGV, 2 do
    redis.call('ZREM', removed, ARGV[i])
    redis.call('HSET', limits, ARGV[i], ARGV[i + 1])
  end
  redis.call('PEXPIRE', limits, life)
  redis.call('PEXPIRE', removed, life)
end
