-- Redis's functions and Lua's by short names.
local call, tonumber, floor = redis.call, tonumber, math.floor
local byte, char, sub = string.byte, string.char, string.sub
-- Numbers as bytes, for windows in packed strings. A Redis without struct, as miniredis is,
-- still decides the algorithms of three keys.
local pack, unpack_at = struct.pack, struct.unpack
-- The frame: local variables through which shapes (one.lua, many.lua ...) and algorithms pass
-- values to each other. A section is a function without parameters that is called on a line of
-- its own. lua.go puts its body in the place of that line, because a call that passes values
-- costs as much as the work that it does. So a section must not return.

-- The limit in use, as read_limit reads it, and its number.
local rate, length, most, ttl, tag, steps
local limit = 1
-- The claim: where it and the ID of its request begin in `requests`, and what it costs.
local requests, id, claim, cost = ARGV[3], 3, 11, 0
-- The state of the window: in `packed`, from first to last. packed is false if there is none.
local packed, first, last
-- What sections of an algorithm set:
--   open   usual: false if only general can decide; left: the permits that are left
--   take   left, without the cost of the claim; if that is not usual it changes nothing else
--   save   state, after open and any number of takes
--   wait   later: how many ms until `cost` permits are left
local usual, left, later, state

-- read_limit reads the limit at limit_at: its algorithm (1 byte), rate (4), length in ms (6)
-- and the most of one claim (4), each lowest byte first; then, each after its own length, its
-- time to live in ms as text (1), its tag (1) and the steps of a cooldown (2), 6 bytes each.
local limits_text, limit_at, algorithm = ARGV[1], 1, nil

-- read_cost reads the cost of the claim, 4 bytes.
-- GCRA: `debt` permits are owed now and come back evenly; `free_at` is when none were owed for
-- the last time. limiter's gcra.go is the same arithmetic, in the same order.
--   state  '<BI6I6d': form 1, the time for which debt is known, free_at, debt
local TINY = 1e-6
local free_at, debt




-- What is short says about when; the loops make it exact, whatever was rounded.

--@ general
-- What many.lua knows of a call: its limits, the reply, and the packed strings, which are read
-- before all decisions and written after them. So a key that many requests ask for is read and
-- written once.
local MANY = char(255)
local rates, lengths, mosts, ttls, tags, all_steps, lives = {}, {}, {}, {}, {}, {}, {}
while limit_at <= #limits_text do
  do
    local a, b, c, d, e, f, g, h, i, j, k, m, n, o, size, x, y
    algorithm, a, b, c, d, e, f, g, h, i, j, k, m, n, o, size = byte(limits_text, limit_at, limit_at + 15)
    rate, most = a + b * 256 + c * 65536 + d * 16777216, k + m * 256 + n * 65536 + o * 16777216
    length = e + f * 256 + g * 65536 + (h + i * 256 + j * 65536) * 16777216
    limit_at = limit_at + 16 + size
    ttl, size = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at)
    limit_at = limit_at + 1 + size
    tag, x, y = sub(limits_text, limit_at - size, limit_at - 1), byte(limits_text, limit_at, limit_at + 1)
    limit_at = limit_at + 2 + x + y * 256
    steps = sub(limits_text, limit_at - x - y * 256, limit_at - 1)
  end
  local n = #rates + 1
  rates[n], lengths[n], mosts[n], ttls[n], tags[n], all_steps[n], lives[n] = rate, length, most, ttl, tag, steps, tonumber(ttl)
end

-- use_limit makes the limit of the number `limit` the one in use; nobody asks for its ttl.
local windows, limit_in_use = ARGV[2], #rates
limit = #rates

local alike = #rates == 1 and #windows == 3 * #KEYS -- the i-th window is of the one limit, in the i-th key
local strings, reply, replied = call('MGET', unpack(KEYS)), { NOW }, 1
local unwritten = {} -- by the number of a key, how long it lives
-- The request: where it begins, how many claims it has, whether all are granted. A string that
-- is to be written: the number of its key, its text, how long it lives.
local from, claims, allowed = 1, 1, 1
local key_number, text, life

-- write_string writes text. The first time Redis must not have a key of another type there,
-- which looks like none in an MGET.

-- How many.lua decides a request of one claim, whose window is alone in its packed string or new.
-- Of a request that is not usual nothing is written.

-- Requests for one key often follow each other. Then the algorithm still knows the window of the
-- request before, the one of the number `held`; its state is saved when another is asked for.
local held, unsaved = 0, false

-- decide_one decides a request of one claim.
-- How many.lua decides a request of several claims, on packed strings that hold nothing but its
-- windows, in its order. Of a request that is not usual nothing is written.

-- Of each claim: its cost, the numbers of its limit and key, what is left before it, and the
-- state after it.
local costs, limits, keys, lefts, states = {}, {}, {}, {}, {}
local dies, sizes = {}, {} -- of each limit and size, how a packed string says when and how long

-- read_claims reads what the request asks for.

-- write_states packs the states of each key into its string.

-- decide_several decides a request of several claims.
-- many decides requests one after another, of one or several claims each, all of one algorithm.
-- general decides a request that is not usual.
-- KEYS, ARGV, reply  as for command/take.lua
local decide_unusual
while from <= #requests do
  claims, usual, id = byte(requests, from), true, from + 2
  if claims == 1 then
    do
      local c, d, e, window_number, y
      cost, c, d, e, window_number, y = byte(requests, from + 10, from + 15)
      if c + d + e > 0 then cost = cost + c * 256 + d * 65536 + e * 16777216 end
      window_number = window_number + y * 256
      allowed, later = 0, 0
      if window_number ~= held then
        if unsaved then
          do
            held = 0
            if unsaved then
              do
                state = tag .. pack('<BI6I6d', 1, NOW, free_at, debt)
              end
              text, life, unsaved = state, ttls[limit], false
              do
                if strings[key_number] then unwritten[key_number] = life else usual = call('SET', KEYS[key_number], text, 'PX', life, 'NX') end
                strings[key_number] = text
              end
            end
          end
        end
        key_number = window_number
        if not alike then
          limit, c, d = byte(windows, 3 * window_number - 2, 3 * window_number)
          if limit ~= limit_in_use then
            do
              rate, length, most, tag, steps, limit_in_use = rates[limit], lengths[limit], mosts[limit], tags[limit], all_steps[limit], limit
            end
          end
          key_number = c + d * 256
        end
        packed, held = strings[key_number], window_number
        if packed then
          first, last = #tag + 1, #packed
          usual = sub(packed, 1, #tag) == tag
        end
        if usual then
          do
            free_at, debt = NOW, 0
            if packed then
              usual = last - first == 20
              if usual then
                local form, known_at
                form, known_at, free_at, debt = unpack_at('<BI6I6d', packed, first)
                if debt > most then debt = most end -- of a higher limit
                usual, debt = form == 1 and known_at <= NOW, debt - (NOW - known_at) * rate / length
                if not (debt > 0) then free_at, debt = NOW, 0 end -- also if it is no number
              end
            end
            left = floor(most - debt + TINY)
          end
        end
      end
      if usual and cost <= left then
        allowed = 1
        do
          debt = debt + cost
          left = floor(most - debt + TINY)
        end
      end
      if usual and cost > left then
        do
          later = math.max(1, math.ceil((debt + cost - most - TINY) * length / rate))
          while later > 1 and floor(most - math.max(0, debt - (later - 1) * rate / length) + TINY) >= cost do later = later - 1 end
          while floor(most - math.max(0, debt - later * rate / length) + TINY) < cost do later = later + 1 end
        end
      end
      if usual and allowed == 1 then
        if strings[key_number] then
          unsaved = true
        else -- the first time something of another type may be there
          do
            state = tag .. pack('<BI6I6d', 1, NOW, free_at, debt)
          end
          text, life = state, ttls[limit]
          do
            if strings[key_number] then unwritten[key_number] = life else usual = call('SET', KEYS[key_number], text, 'PX', life, 'NX') end
            strings[key_number] = text
          end
        end
      end
      if usual then reply[replied + 1], reply[replied + 2], reply[replied + 3] = allowed, left < 0 and 0 or left, later end
    end
  else
    do
      local at = from + 10
      for j = 1, claims do
        local b, c, d, e, x, y = byte(requests, at, at + 5)
        if c + d + e > 0 then b = b + c * 256 + d * 65536 + e * 16777216 end
        costs[j], x = b, 3 * (x + y * 256)
        limits[j], x, y = byte(windows, x - 2, x)
        keys[j], at = x + y * 256, at + 6
      end
    end
    do
      local next, size, several, to = 1, 0, false, replied + 1
      do
        held = 0
        if unsaved then
          do
            state = tag .. pack('<BI6I6d', 1, NOW, free_at, debt)
          end
          text, life, unsaved = state, ttls[limit], false
          do
            if strings[key_number] then unwritten[key_number] = life else usual = call('SET', KEYS[key_number], text, 'PX', life, 'NX') end
            strings[key_number] = text
          end
        end
      end
      allowed, key_number = 1, 0
      reply[to] = 1 -- first: what lies behind a hole makes another kind of table
      for j = 1, claims do
        limit, cost = limits[j], costs[j]
        if limit ~= limit_in_use then
          do
            rate, length, most, tag, steps, limit_in_use = rates[limit], lengths[limit], mosts[limit], tags[limit], all_steps[limit], limit
          end
        end
        if keys[j] ~= key_number then
          usual = next > size and keys[j] > key_number -- the string before has no other windows, and is not met again
          key_number = keys[j]
          packed = strings[key_number]
          next, size, several = 1, packed and #packed or 0, packed and byte(packed) == 255
          if several then next = 2 end
          if usual and not packed and keys[1] ~= keys[claims] then usual = call('EXISTS', KEYS[key_number]) == 0 end -- all or none
        elseif packed and not several then
          usual = false
        end
        if packed and usual then
          last = size
          if several then
            local x, y, z = byte(packed, next + 6, next + 8)
            next = next + 9
            last = z and next - 1 + x + y * 256 + z * 65536 or size + 1
          end
          usual, first = last <= size and sub(packed, next, next + #tag - 1) == tag, next + #tag
          next = last + 1
        end
        if usual then
          do
            free_at, debt = NOW, 0
            if packed then
              usual = last - first == 20
              if usual then
                local form, known_at
                form, known_at, free_at, debt = unpack_at('<BI6I6d', packed, first)
                if debt > most then debt = most end -- of a higher limit
                usual, debt = form == 1 and known_at <= NOW, debt - (NOW - known_at) * rate / length
                if not (debt > 0) then free_at, debt = NOW, 0 end -- also if it is no number
              end
            end
            left = floor(most - debt + TINY)
          end
        end
        if not usual then break end
        lefts[j], later = left, 0
        if cost > left then
          allowed = 0
          do
            later = math.max(1, math.ceil((debt + cost - most - TINY) * length / rate))
            while later > 1 and floor(most - math.max(0, debt - (later - 1) * rate / length) + TINY) >= cost do later = later - 1 end
            while floor(most - math.max(0, debt - later * rate / length) + TINY) < cost do later = later + 1 end
          end
        elseif allowed == 1 then
          do
            debt = debt + cost
            left = floor(most - debt + TINY)
          end
          if not usual then break end
          do
            state = tag .. pack('<BI6I6d', 1, NOW, free_at, debt)
          end
          states[j] = state
          if cost > left then
            do
              later = math.max(1, math.ceil((debt + cost - most - TINY) * length / rate))
              while later > 1 and floor(most - math.max(0, debt - (later - 1) * rate / length) + TINY) >= cost do later = later - 1 end
              while floor(most - math.max(0, debt - later * rate / length) + TINY) < cost do later = later + 1 end
            end
          end
        end
        reply[to + 1], reply[to + 2] = left < 0 and 0 or left, later
        to = to + 2
      end
      usual = usual and next > size
      if usual and allowed == 1 then
        do
          local j = 1
          while j <= claims and usual do
            key_number, limit = keys[j], limits[j]
            if j == claims or keys[j + 1] ~= key_number then
              text, life, j = states[j], ttls[limit], j + 1
            else
              local longest = 0
              text = MANY
              while j <= claims and keys[j] == key_number do
                limit, state = limits[j], states[j]
                dies[limit] = dies[limit] or pack('<I6', NOW + lives[limit])
                sizes[#state] = sizes[#state] or pack('<I3', #state)
                if lives[limit] > longest then longest, life = lives[limit], ttls[limit] end
                text, j = text .. dies[limit] .. sizes[#state] .. state, j + 1
              end
            end
            do
              if strings[key_number] then unwritten[key_number] = life else usual = call('SET', KEYS[key_number], text, 'PX', life, 'NX') end
              strings[key_number] = text
            end
          end
        end
      elseif usual then -- what was taken is not
        reply[replied + 1] = 0
        for j = 1, claims do
          if costs[j] <= lefts[j] then reply[replied + 2 * j], reply[replied + 2 * j + 1] = lefts[j], 0 end
        end
      end
    end
  end
  if usual then
    replied = replied + 1 + 2 * claims
  else
    do
      held = 0
      if unsaved then
        do
          state = tag .. pack('<BI6I6d', 1, NOW, free_at, debt)
        end
        text, life, unsaved = state, ttls[limit], false
        do
          if strings[key_number] then unwritten[key_number] = life else usual = call('SET', KEYS[key_number], text, 'PX', life, 'NX') end
          strings[key_number] = text
        end
      end
    end
    do
      for number, its_life in pairs(unwritten) do
        call('SET', KEYS[number], strings[number], 'PX', its_life)
        unwritten[number] = nil
      end
    end
    decide_unusual = decide_unusual or general(NOW)
    replied = decide_unusual(from, reply, replied)
    for j = 1, claims do
      local its = claims == 1 and key_number or keys[j]
      strings[its] = call('MGET', KEYS[its])[1]
    end
  end
  from = from + 10 + 6 * claims
end
do
  held = 0
  if unsaved then
    do
      state = tag .. pack('<BI6I6d', 1, NOW, free_at, debt)
    end
    text, life, unsaved = state, ttls[limit], false
    do
      if strings[key_number] then unwritten[key_number] = life else usual = call('SET', KEYS[key_number], text, 'PX', life, 'NX') end
      strings[key_number] = text
    end
  end
end
do
  for number, its_life in pairs(unwritten) do
    call('SET', KEYS[number], strings[number], 'PX', its_life)
    unwritten[number] = nil
  end
end
return reply
