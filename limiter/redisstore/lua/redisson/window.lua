-- A limiter in the form of Redisson up to 3.13.2: value counts down from the rate
-- and lives for one interval, so up to twice the rate passes across a border. What
-- was given back is remembered under the name of the entries, which these versions
-- do not use, for as long as value lives.

local function open(w)
  w.value = value(w)
  if w.value and ask('PTTL', w.state) == -1 then w.value = nil end -- without an end it is of a newer form
  w.left = math.min(w.rate, w.value or w.rate)
end

-- remains is how long the window still lasts: all of it if there is none.
local function remains(w)
  local ttl = ask('PTTL', w.state)
  return math.min(w.length, ttl < 0 and w.length or math.max(1, ttl))
end

local function wait(w, n)
  if n <= w.left then return 0 end
  if n > w.rate or not w.value then return w.length end
  return remains(w)
end

local function take(w, _, n) w.left, w.given = w.left - n, w.given + n end

-- keep begins a window at NOW, which is when its permits count, or goes on with one.
local function keep(w)
  if w.given == 0 then return end
  call('SET', w.state, int(w.left), 'KEEPTTL')
  if call('PTTL', w.state) < 0 then call('PEXPIREAT', w.state, int(NOW + w.length)) end
  if w.is_new then configure(w) end
  if w.keep_alive > 0 then call('PEXPIRE', KEYS[1], int(math.max(w.keep_alive, w.length))) end
end

-- refund gives back n permits that id took at the time `at`, once, and in the same
-- window. Up to Redis 7.0 time goes on between two commands: it looks up to 8 times.
local function refund(w, id, n, at)
  open(w)
  local now, left, looks = 0, 0, 0
  repeat now, left, looks = clock(), remains(w), looks + 1 until clock() == now or looks == 8
  if not w.value or at < now - w.length + left then return 0 end
  ask('SCARD', w.log)
  if call('SADD', w.log, id) == 0 then return 0 end
  call('PEXPIRE', w.log, int(remains(w)))
  credit(w, n)
  return n
end

local function grant(w, n)
  credit(w, n)
  return 0
end

-- report counts in the window of now what was granted elsewhere, however old.
local function report(w, list)
  open(w)
  for _, g in ipairs(list) do take(w, g.id, g.n) end
  keep(w)
end
