-- Numbers as bytes, for windows in packed strings. A Redis without struct
-- still decides the algorithms of three keys.
local pack, unpack_at = struct.pack, struct.unpack
