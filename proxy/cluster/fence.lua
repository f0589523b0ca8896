-- Put before every script by which a leader changes something.
-- KEYS[1]  the hash that says who leads
-- ARGV[1]  the token under which the caller leads
-- It ends the script with DEPOSED, before anything is changed, unless the caller
-- is the one who took the lead last.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
  return redis.error_reply('DEPOSED another node has taken the lead')
end
