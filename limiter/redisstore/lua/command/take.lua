-- take decides requests one after another, each wholly or not at all.
-- KEYS   those of each window: a packed string, or value, permits and cached sum
-- ARGV   limits, see limit.lua; windows, see windows.lua; requests, see decide.lua; which of
--        them follow another, if some do; what is noted, see note.lua, if something is
-- reply  time (ms); then for each request 1 or 0, and for each of its claims what is left
--        (-1: banned) and the wait (ms). 2 for 1 or 0: something is of another type than it
--        should be, -2 says of which claims; nothing was taken
local windows = read_windows()
local reply = decide_all(windows, false)
for i = 1, #windows do
  if not windows[i].bad then windows[i].algorithm.keep(windows[i]) end
end
note_granted(reply)
return reply
