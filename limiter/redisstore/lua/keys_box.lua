-- How windows of one key are read, see straight.lua and lone.lua.
--@ read all
local struct_pack, struct_unpack, STRIDE = struct.pack, struct.unpack, 16
local got = call('MGET', unpack(KEYS))
--@ window
local l, k, state, key, base = byte(of, 3 * i - 2), i, got[i], KEYS[i], nil
local rate, length, most, ttl, tag, step = rates[l], lengths[l], mosts[l], ttls[l], tags[l], steps[l]
--@ read one
local struct_pack, struct_unpack = struct.pack, struct.unpack
local key, base = KEYS[1], nil
local state = call('MGET', key)[1]
