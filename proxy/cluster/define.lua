-- define makes the pairs of name and definition that begin at ARGV[first] the
-- definitions of limits, notes which have left them, and lets both live so many
-- milliseconds. What is new comes first: while the slot of a cluster moves, a key
-- that a script has emptied cannot be written any more.
local function define(limits, removed, first, life)
  local t = redis.call('TIME')
  local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
  local names, defined = redis.call('HKEYS', limits), {}
  for i = first, #ARGV, 2 do
    defined[ARGV[i]] = true
    redis.call('HSET', limits, ARGV[i], ARGV[i + 1])
  end
  for i = 1, #names do
    if not defined[names[i]] then redis.call('ZADD', removed, now, names[i]) end
  end
  redis.call('PEXPIRE', limits, life)
  redis.call('PEXPIRE', removed, life)
  for i = 1, #names do
    if not defined[names[i]] then redis.call('HDEL', limits, names[i]) end
  end
  for i = first, #ARGV, 2 do
    redis.call('ZREM', removed, ARGV[i])
  end
end
