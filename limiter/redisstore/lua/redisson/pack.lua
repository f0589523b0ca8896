-- How an entry of a limiter is packed, by the Redisson that reads it:
--   float  3.13.3 to 3.16.3   4 bytes of id
--   long   3.16.4 to 3.16.8   the id's length in 8 bytes, the id
--   byte   3.17 and later     the id's length in 1 byte, the id
-- and then, in all of them, the count in 4 bytes, lowest first. Redisson reads all
-- entries of a limiter the same way, and takes garbage out of the others.

local PACKED_BY = { float = '3.13.3 to 3.16.3', long = '3.16.4 to 3.16.8', byte = '3.17 and later' }

local function pack(packing, id, n)
  if packing == 'float' then return sub(id, 1, 4) .. little(n, 4) end
  if packing == 'long' then return little(#id, 8) .. id .. little(n, 4) end
  return char(#id) .. id .. little(n, 4)
end

-- packing_of recognises an entry by its length.
local function packing_of(member)
  local size = #member
  if size == 8 then return 'float' end
  if size >= 5 and byte(member, 1) == size - 5 then return 'byte' end
  if size >= 12 and number(member, 1, 8) == size - 12 then return 'long' end
end

-- count_of reads an entry's count, and lets w go by its packing.
local function count_of(member, w)
  local packing = packing_of(member)
  if not packing then
    refuse('UNSHARED permits: an entry of ' .. #member .. ' bytes, which no Redisson has packed')
  end
  if w.found and w.found ~= packing then
    refuse(format('UNSHARED permits: Redisson %s and %s have packed entries here; let all use one of them, then reset it',
      PACKED_BY[w.found], PACKED_BY[packing]))
  end
  w.found, w.packing = packing, packing
  return permits_of(member)
end
