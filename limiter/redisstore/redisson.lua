-- A limiter that is shared with Redisson: a bucket whose config is a hash,
--   rate, interval (ms), type (0: all clients together, 1: each by itself),
--   keepAliveTime (ms without use until all is forgotten; 0: never)
-- and which other programs change as well. So nothing is trusted but the entries,
-- and every call counts them. Its five KEYS: value, permits, the hash, and value
-- and permits of this client.

local redisson = {}
for name, f in pairs(bucket) do redisson[name] = f end
redisson.keys = 5
local PER_CLIENT = 9

-- place gives a window of a claim its keys, of which KEYS[k] is the first.
function redisson.place(w, k) w.hash, w.own_state, w.own_log = w.base, KEYS[k + 3], KEYS[k + 4] end

-- choose lets w be what its type counts: all clients together, or this one.
local function choose(w)
  if w.type == 1 then w.state, w.log = w.own_state, w.own_log end
end

local function limit_of(rate, length, algorithm)
  return { kind = redisson, algorithm = algorithm, rate = rate, most = rate, length = length, old = int(NOW - length), merges = rate > FULL }
end

-- configured reads the hash into w, and reports whether there is one.
local function configured(w)
  local c = call('HMGET', w.hash, 'rate', 'interval', 'type', 'keepAliveTime')
  if not c[1] or not c[2] then return false end
  w.l = limit_of(tonumber(c[1]), tonumber(c[2]), w.l.algorithm)
  w.type, w.keep_alive = tonumber(c[3]) or 0, tonumber(c[4]) or 0
  choose(w)
  return true
end

-- find is configured for a window of a claim. Without a hash it goes by the
-- claim's own limit.
local function find(w)
  if configured(w) then return true end
  w.type, w.keep_alive = w.l.algorithm == PER_CLIENT and 1 or 0, math.max(2 * w.l.length, 3600000)
  choose(w)
  return false
end

local function configure(w)
  call('HSET', w.hash, 'rate', int(w.l.rate), 'interval', int(w.l.length), 'type', int(w.type), 'keepAliveTime', int(w.keep_alive))
end

-- expire does as Redisson does: all keys live as long as the config says, or as
-- the hash does.
local function expire(w)
  local ttl = w.keep_alive > 0 and math.max(w.keep_alive, w.l.length) or call('PTTL', w.hash)
  if ttl <= 0 then return end
  for _, key in ipairs({ w.hash, w.state, w.log }) do call('PEXPIRE', key, int(ttl)) end
end

-- open counts anew. Without a config the claim's own is written, with the first
-- grant; it is forgotten an hour after the last use.
function redisson.open(w)
  w.fresh_config = not find(w)
  recount(w)
end

function redisson.keep(w)
  if not write(w) then return end
  if w.fresh_config then configure(w) end
  call('SET', w.state, int(w.left), 'KEEPTTL')
  expire(w)
end

function redisson.refund(w, id, cost, at)
  find(w)
  return bucket.refund(w, id, cost, at)
end

function redisson.grant(w, n)
  find(w)
  return bucket.grant(w, n)
end

KINDS['8'], KINDS['9'] = redisson, redisson
