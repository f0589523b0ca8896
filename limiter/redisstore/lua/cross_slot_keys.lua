#!lua flags=allow-cross-slot-keys
-- A script for keys of several slots of a master of a cluster, which are no KEYS, but arguments behind their number. One that
-- is not here is an error when it is asked for. All are asked for before one is written: so nothing is taken then.
local KEYS, ARGV = { unpack(ARGV, 2, ARGV[1] + 1) }, { unpack(ARGV, ARGV[1] + 2) }
