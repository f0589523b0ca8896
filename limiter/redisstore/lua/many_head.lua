-- What scripts for requests of several claims have that read and write boxes, see box.lua,
-- with struct formats that have the window's tag in them.
--@ begin
local MANY = char(255)
local struct_pack, struct_unpack = struct.pack, struct.unpack
local got, key = call('MGET', unpack(KEYS)), 0 -- key is the number of the one that was read last
local SIZE = #struct_pack(LAYOUT, 1, 0, 0, 0, 0)

-- Of each limit: a window alone in its box, and in one of many; its time to live.
local alone, boxed, lives = {}, {}, {}
local function lay_out(l)
  alone[l] = '<c' .. #tags[l] .. sub(LAYOUT, 2)
  boxed[l], lives[l] = '<I6I3' .. sub(alone[l], 2), tonumber(ttls[l])
end

local reply, r = { NOW }, 1 -- r is how long it is
