-- General scripts decide whatever is asked, whatever the keys hold. This is how they read the
-- limits and windows of a call.
-- SLACK is how many ms keys outlive what they must remember.
local SLACK, MOST_COUNT = 1000, 4294967295
local CONCURRENT, DISTINCT = 4, 5 -- numbers of algorithms

-- algorithms are tables of functions by the algorithms' numbers; those that no limit of the call
-- asks for are not defined.
local algorithms, asked_for, limits = {}, {}, {}
while limit_at <= #limits_text do
  read_limit()
  asked_for[algorithm] = true
  limits[#limits + 1] = {
    number = #limits + 1, algorithm = algorithm, rate = rate, length = length, most = most, steps = steps, ttl = ttl,
    field = field, horizon = algorithm == 0 and length or ttl - SLACK, old = false,
    merges = rate > FULL and algorithm ~= CONCURRENT,
  }
end

-- new_window makes a table of a window of the limit l and its keys, one or three. The table has
-- from the beginning what most windows need, because a table that grows costs much more.
local function new_window(l, state, log, cached_sum)
  local functions = algorithms[l.algorithm]
  if functions.keys == 1 then
    return {
      l = l, algorithm = functions, state = state, left = 0, raw = false, ban = 0, banned = nil, refund_horizon = 0,
      tombstones = '',
    }
  end
  if not l.old then l.old = int(NOW - l.length) end
  return {
    l = l, algorithm = functions, state = state, log = log, cached_sum = cached_sum, left = 0, given = 0, gone = 0,
    size = false, members = false,
  }
end

-- window makes a table of the i-th window, of which ARGV[2] has three bytes: the number of its
-- limit and (2) of the first of its KEYS.
local function window(i)
  local number, x, y = byte(ARGV[2], 3 * i - 2, 3 * i)
  local k = x + y * 256
  return new_window(limits[number], KEYS[k], KEYS[k + 1], KEYS[k + 2])
end

-- list_windows makes tables of all windows.
local function list_windows()
  local windows = {}
  for i = 1, #ARGV[2] / 3 do windows[i] = window(i) end
  return windows
end
