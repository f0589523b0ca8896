-- What algorithms of three keys pass to each other besides, see limit.lua.
--   of the window  the names of its value and log, and the text of its value
--   of the claim   whether taking it removes what has expired
--   of times       now as Redis reads it; old is `old_length` before that
-- open, take and wait are as in limit.lua; write writes what take said.
local key, log, value
local trim
local now, old, old_length = int(NOW), nil, nil

local function set_old()
  if old_length ~= length then old, old_length = int(NOW - length), length end
end
