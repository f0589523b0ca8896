-- note notes what a request took elsewhere, in another slot of a cluster.
-- KEYS   the note
-- ARGV   no limits; how long the note lives in ms, the ID, when the permits were taken in ms, and
--        what is noted, see general/note.lua
-- reply  1
note(KEYS[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5])
return 1
