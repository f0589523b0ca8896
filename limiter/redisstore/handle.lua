-- KEYS of a Redisson limiter, as Redisson passes them: 1 the hash, 2 value, 3 value
-- of this client, 4 permits, 5 permits of this client.

local UNSET = redis.error_reply('UNSET rate limiter is not initialized')

local function blank()
  return {
    l = { algorithm = 0 }, given = 0, gone = 0,
    hash = KEYS[1], state = KEYS[2], own_state = KEYS[3], log = KEYS[4], own_log = KEYS[5],
  }
end

-- handle is the window of the limiter, or nil if it has no config.
local function handle()
  local w = blank()
  return configured(w) and w or nil
end

-- config makes a window of four ARGV: rate, interval, type, keepAliveTime.
local function config(from)
  local w = blank()
  w.l = limit_of(tonumber(ARGV[from]), tonumber(ARGV[from + 1]), 0)
  w.type, w.keep_alive = tonumber(ARGV[from + 2]), tonumber(ARGV[from + 3])
  choose(w)
  return w
end
