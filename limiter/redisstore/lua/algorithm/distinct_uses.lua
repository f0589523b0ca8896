-- The uses of the values of a distinct limit, see algorithm/distinct.lua. An ID of zeros is of uses that are not
-- given back any more.
local BEFORE, MOST_EXPIRED = string.rep(char(0), 8), 32

-- few leaves of a text of uses the last two, and when the last one before was.
local function few(text) return #text < 42 and text or BEFORE .. sub(text, -34) end

-- forget removes values.
local function forget(uses, log, values)
  if #values == 0 then return end
  call('ZREM', log, unpack(values))
  call('HDEL', uses, unpack(values))
end

-- add_use adds a use of a value, now, which may have others if it is known. If values have expired since a time, it
-- removes a few, but never all: see set.lua.
local function add_use(uses, log, value, id, known, expired_since, ttl)
  if expired_since then
    local most = math.min(MOST_EXPIRED, call('ZCARD', log) - 1)
    forget(uses, log, call('ZRANGEBYSCORE', log, '-inf', expired_since, 'LIMIT', 0, most))
  end
  call('HSET', uses, value, few((known and call('HGET', uses, value) or '') .. id .. little(NOW, 6)))
  call('ZADD', log, int(NOW), value)
  call('PEXPIRE', uses, ttl)
  call('PEXPIRE', log, ttl)
end
