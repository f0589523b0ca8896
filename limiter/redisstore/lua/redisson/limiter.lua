-- A limiter that is shared with Redisson. KEYS are those that Redisson passes:
--   1     the hash: rate, interval (ms), type (0: all clients together, 1: each by
--         itself), keepAliveTime (ms without use until all is forgotten; 0: never)
--   2, 3  value of all, and of this client: the permits left
--   4, 5  permits of all, and of this client: the entries
-- ARGV 1 to 3 are rate, length (ms) and type if there is no hash, the first empty
-- for who goes by a hash alone; 4 is how Redisson packs entries. Another file says
-- what value and entries mean: open, wait, take, keep, refund, grant and report.
--
-- What a script does is bounded, whatever others have left here. All is read before
-- anything is written, and each read is guarded: what cannot be used is refused
-- with UNSHARED and the reason, and stays as it was.

local MOST_COUNT, MOST_LENGTH = 2147483647, 31622400000
local now_text, refused = int(NOW), nil

local function refuse(text)
  refused = text
  error(text)
end

-- run is f's result, or the reply with which something in f was refused. Versions
-- of Redis differ in what pcall says of an error.
local function run(f)
  local ok, result = pcall(f)
  if ok then return result end
  if not refused and type(result) == 'table' then return result end
  return redis.error_reply(refused or (string.gsub(result, '^@?user_script:%s*%d+:%s*', '')))
end

-- part says what a key is: its name has what the limit counts by, and what is refused is logged.
local function part(key)
  for i, name in ipairs({ 'config', 'value', 'value', 'permits' }) do if KEYS[i] == key then return name end end
  return 'permits'
end

-- ask reads a key.
local function ask(verb, key, ...)
  local found = redis.pcall(verb, key, ...)
  if type(found) == 'table' and found.err then refuse('UNSHARED ' .. part(key) .. ': ' .. found.err) end
  return found
end

-- possible reads a rate or an interval of the hash.
local function possible(text, name, most)
  local n = text and string.match(text, '^%d+$') and tonumber(text)
  if n and n >= 1 and n <= most then return n end
  refuse(format('UNSHARED config: %s is %s, not 1 to %s', name, text or 'missing', int(most)))
end

-- configured reads the hash into w, and reports whether there is one.
local function configured(w)
  local c = ask('HMGET', KEYS[1], 'rate', 'interval', 'type', 'keepAliveTime')
  if not c[1] and not c[2] and ask('EXISTS', KEYS[1]) == 0 then return false end
  w.rate, w.length = possible(c[1], 'rate', MOST_COUNT), possible(c[2], 'interval', MOST_LENGTH)
  w.type, w.keep_alive = tonumber(c[3]) or 0, tonumber(c[4]) or 0
  return true
end

-- placed lets w be what its type counts.
local function placed(w)
  local by_client = w.type == 1 and 1 or 0
  w.state, w.log, w.packing, w.given, w.ids, w.costs = KEYS[2 + by_client], KEYS[4 + by_client], ARGV[4], 0, {}, {}
  return w
end

-- limiter is what the hash says, or else ARGV. Then the first grant writes a hash,
-- which lives as long as the permits.
local function limiter()
  local w = {}
  if not configured(w) then
    if ARGV[1] == '' then refuse('UNSET rate limiter is not initialized') end
    w.rate, w.length, w.type, w.is_new = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), true
    w.keep_alive = w.length
  end
  return placed(w)
end

local function configure(w)
  local rate, length, alive = int(w.rate), int(w.length), int(w.keep_alive)
  call('HSET', KEYS[1], 'rate', rate, 'interval', length, 'type', int(w.type), 'keepAliveTime', alive)
end

-- value is the number in value, if there is one.
local function value(w)
  local text = ask('GET', w.state)
  if text and not string.match(text, '^%-?%d+$') then refuse('UNSHARED value: is no whole number') end
  return text and tonumber(text) or nil
end

-- credit adds what is given back to value.
local function credit(w, n)
  local left = value(w)
  if left then call('SET', w.state, int(math.min(w.rate, left + n)), 'KEEPTTL') end
end

-- expire does as Redisson does: all keys live as long as the config says, or as
-- the hash does.
local function expire(w)
  local ttl = w.keep_alive > 0 and math.max(w.keep_alive, w.length) or call('PTTL', KEYS[1])
  if ttl <= 0 then return end
  for _, key in ipairs({ KEYS[1], w.state, w.log }) do call('PEXPIRE', key, int(ttl)) end
end

-- publish_change lets all proxies know that there may be room. Who may not publish still may
-- make some.
local function publish_change() redis.pcall('PUBLISH', FREED, 'shared:' .. KEYS[1]) end
