-- Wireshark and tshark: what is in gradwire's compressed frames. Copy it into a folder that "Help,
-- About, Folders" names as "Personal Lua Plugins", or run
-- `tshark -X lua_script:gradwire.lua -r wire.pcap -V`.
--
-- Written from FORMAT.md alone, so it is also a check of that document:
-- `testbench/tests/dissector.rs` compares it with the engines. Numbers in brackets are FORMAT.md's
-- sections.
--
-- It is a postdissector, which sees whole frames: an in-place frame is shorter than its IP length
-- says, and Wireshark hands no payload of such a frame to anyone. It reads no byte that it has not
-- counted, and refuses by `refuse`, never by an error of Lua. Arithmetic only, no bit operators:
-- Wireshark's Lua is 5.1 to 5.4.

local gradwire = Proto("gradwire", "gradwire: compressed gradients")

-- Preferences
-- ---------------------------------------------------------------------------------------------------------

local prefs = gradwire.prefs
prefs.mark = Pref.uint("Mark", 0x30, "Type of service of compressed frames; only its upper six bits count")
prefs.tos = Pref.uint("Type of service", 0x28, "Type of service that asks for compression")
prefs.mask = Pref.uint("Mask", 0xfc, "Which bits of it count")
prefs.in_place = Pref.string("In-place profile", "", "For in-place framing if no SYN in the capture says it: " ..
  "b=10 k=3 x=0 for codec 1, y=-10 for codec 2")
prefs.udp_offset = Pref.uint("UDP offset", 0, "In-place framing: bytes at the start of UDP payloads that are no values")
prefs.max_values = Pref.uint("Values shown", 64, "So many decoded values of each frame get a line; 0 for none")

-- Fields
-- --------------------------------------------------------------------------------------------------------------

local f = {
  framing = ProtoField.string("gradwire.framing", "Framing"),
  version = ProtoField.uint8("gradwire.version", "Version"),
  codec = ProtoField.uint8("gradwire.codec", "Codec"),
  tos = ProtoField.uint8("gradwire.tos", "Original type of service", base.HEX),
  no_checksum = ProtoField.uint8("gradwire.no_checksum", "Original UDP checksum was zero"),
  head_len = ProtoField.uint8("gradwire.head_len", "Length of the head"),
  raw_len = ProtoField.uint16("gradwire.raw_len", "Length of the original payload"),
  b = ProtoField.uint8("gradwire.b", "Bound exponent b"),
  k = ProtoField.uint8("gradwire.k", "Byte offset k"),
  x = ProtoField.int8("gradwire.x", "Scale exponent x"),
  y = ProtoField.int8("gradwire.y", "Exponent of the bound y"),
  bound = ProtoField.double("gradwire.bound", "Bound of the error"),
  values = ProtoField.uint32("gradwire.values", "Values"),
  ratio = ProtoField.double("gradwire.ratio", "Bytes of the original payload for each on the wire"),
  head = ProtoField.bytes("gradwire.head", "Head: bytes before the first whole value"),
  group = ProtoField.uint32("gradwire.group", "Group"),
  tags = ProtoField.uint16("gradwire.group.tags", "Tag vector", base.HEX),
  section = ProtoField.uint32("gradwire.section", "Section"),
  mode = ProtoField.uint8("gradwire.section.mode", "Mode", base.DEC,
    { [0] = "all values are zero", [1] = "two-level map", [2] = "flat map", [3] = "dense" }),
  items = ProtoField.uint32("gradwire.section.items", "Items"),
  value = ProtoField.float("gradwire.value", "Value"),
  tail = ProtoField.bytes("gradwire.tail", "Tail: bytes behind the last whole value"),
  restored = ProtoField.bytes("gradwire.restored", "Restored payload"),
  sum = ProtoField.uint16("gradwire.sum", "Sum of pseudo-header and segment", base.HEX),
  outcome = ProtoField.string("gradwire.outcome", "What a receiver does"),
  reason = ProtoField.string("gradwire.reason", "Reason"),
  option = ProtoField.bytes("gradwire.option", "Handshake's option"),
  option_routed = ProtoField.bool("gradwire.option.routed", "Restores routed framing"),
  option_in_place = ProtoField.bool("gradwire.option.in_place", "Restores in-place framing"),
  option_codecs = ProtoField.uint8("gradwire.option.codecs", "Codecs restored in routed framing", base.HEX),
  option_in_place_codec = ProtoField.uint8("gradwire.option.in_place.codec", "In-place codec"),
  option_in_place_parameters =
    ProtoField.uint16("gradwire.option.in_place.parameters", "In-place parameters", base.HEX),
  option_alignment = ProtoField.uint8("gradwire.option.alignment", "Alignment", base.DEC,
    { [0] = "the connection's", [1] = "every payload starts with a value" }),
  tagged = ProtoField.bool("gradwire.tagged", "Tagged, and not compressed"),
}
gradwire.fields = f

local note = {
  checksum = ProtoExpert.new("gradwire.note.checksum", "Checksum that is wrong on purpose", expert.group.CHECKSUM,
    expert.severity.CHAT),
  unverified = ProtoExpert.new("gradwire.note.unverified", "Checksum that cannot be verified", expert.group.CHECKSUM,
    expert.severity.CHAT),
  dropped = ProtoExpert.new("gradwire.note.dropped", "A receiver drops this frame", expert.group.MALFORMED,
    expert.severity.ERROR),
  foreign = ProtoExpert.new("gradwire.note.foreign", "A receiver passes this frame untouched", expert.group.PROTOCOL,
    expert.severity.NOTE),
  cut = ProtoExpert.new("gradwire.note.cut", "The capture cut this frame", expert.group.UNDECODED,
    expert.severity.WARN),
  unknown = ProtoExpert.new("gradwire.note.unknown", "In-place parameters are not known", expert.group.UNDECODED,
    expert.severity.WARN),
  option = ProtoExpert.new("gradwire.note.option", "Handshake's option that is not valid", expert.group.PROTOCOL,
    expert.severity.WARN),
}
gradwire.experts = note

-- Bytes and refusals
-- --------------------------------------------------------------------------------------------------

local MAGIC = 0x6777
local TCP, UDP = 6, 17
local SECTION_VALUES, LANES = 512, 8
local NO_UDP = { [2152] = true, [4789] = true, [4791] = true, [6081] = true, [8472] = true }

-- Ends the reading of a frame: what a receiver does with it, under which name, and why in words.
local function refuse(outcome, reason, text)
  error({ outcome = outcome, reason = reason, text = text })
end

-- Runs `read`; returns its result, or nil and the refusal. A mistake in this file stays an error.
local function attempt(read, ...)
  local done, result = pcall(read, ...)
  if done then return result end
  if type(result) ~= "table" then error(result, 0) end
  return nil, result
end

local function u8(s, at) return s:byte(at + 1) end
local function u16(s, at)
  local high, low = s:byte(at + 1, at + 2)
  return high * 256 + low
end
local function i8(byte) return byte < 128 and byte or byte - 256 end
-- `count` bits of `number` from bit `from` on.
local function bits(number, from, count) return math.floor(number / 2 ^ from) % 2 ^ count end
local function plural(count, what) return string.format("%d %s%s", count, what, count == 1 and "" or "s") end

-- The ones' complement sum of the bytes from `from` to before `to`.
local function sum16(s, from, to)
  local sum = 0
  for at = from, to - 2, 2 do sum = sum + u16(s, at) end
  if (to - from) % 2 == 1 then sum = sum + u8(s, to - 1) * 256 end
  return sum
end
local function folded(sum)
  while sum > 0xffff do sum = sum % 65536 + math.floor(sum / 65536) end
  return sum
end

-- Codecs
-- --------------------------------------------------------------------------------------------------------------

-- (-1)^sign * q * 2^weight as the four bytes of a binary32 that is normal or, if q is 0, a zero.
local function float(sign, q, weight)
  if q == 0 then return string.char(0, 0, 0, sign * 128) end
  local lead = 0
  while 2 ^ (lead + 1) <= q do lead = lead + 1 end
  local exponent, mantissa = 127 + weight + lead, (q - 2 ^ lead) * 2 ^ (23 - lead)
  return string.char(bits(mantissa, 0, 8), bits(mantissa, 8, 8), bits(mantissa, 16, 7) + bits(exponent, 0, 1) * 128,
    sign * 128 + bits(exponent, 1, 7))
end

local ZERO = string.char(0, 0, 0, 0)

-- `len` bytes at `at`, before `stop`.
local function take(s, at, len, stop, what)
  if at + len > stop then refuse("dropped", "groups", what .. " ends behind the packet") end
  return s:sub(at + 1, at + len)
end

-- Codec 1 [4.1]: appends to `values` and `classes`; returns where the group ends.
local function group(s, at, stop, count, p, values, classes)
  local tags = take(s, at, 2, stop, "a tag vector")
  tags = tags:byte(1) + tags:byte(2) * 256
  at = at + 2
  for lane = 0, LANES - 1 do
    local tag = bits(tags, 2 * lane, 2)
    if lane >= count then
      if tag ~= 0 then refuse("dropped", "groups", string.format("absent lane %d has tag %d", lane, tag)) end
    elseif tag == 0 then
      values[#values + 1], classes[#classes + 1] = ZERO, "zero"
    elseif tag == 3 then
      values[#values + 1], classes[#classes + 1] = take(s, at, 4, stop, "a raw vector"), "raw"
      at = at + 4
    else
      local vector = take(s, at, tag, stop, "a vector")
      local word, n = vector:byte(1), p.k + 7
      if tag == 2 then word, n = word + vector:byte(2) * 256, 15 end
      local top = 2 ^ (8 * tag - 1)
      values[#values + 1] = float(math.floor(word / top), word % top, p.x - n)
      classes[#classes + 1] = tag == 1 and "byte" or "half"
      at = at + tag
    end
  end
  return at, tags
end

-- Codec 2 [4.2]: likewise, for a section.
local function section(s, at, stop, count, p, values, classes)
  local octets = math.ceil(count / 8)
  local mode = take(s, at, 1, stop, "a section's mode"):byte()
  at = at + 1
  if mode > 3 then refuse("dropped", "groups", string.format("a section has mode %d", mode)) end
  local map = {}
  if mode == 1 then
    local len = math.ceil(octets / 8)
    local presence = take(s, at, len, stop, "a presence map")
    at = at + len
    for octet = 0, 8 * len - 1 do
      map[octet] = 0
      if bits(presence:byte(math.floor(octet / 8) + 1), octet % 8, 1) == 1 then
        if octet >= octets then refuse("dropped", "groups", "a presence bit is beyond the map") end
        map[octet] = take(s, at, 1, stop, "a map"):byte()
        at = at + 1
      end
    end
  elseif mode == 2 then
    local whole = take(s, at, octets, stop, "a map")
    for octet = 0, octets - 1 do map[octet] = whole:byte(octet + 1) end
    at = at + octets
  end
  local places = {}
  for i = 0, octets * 8 - 1 do
    local set = mode == 3 and i < count or (mode == 1 or mode == 2) and bits(map[math.floor(i / 8)], i % 8, 1) == 1
    if set and i >= count then refuse("dropped", "groups", "a map bit is beyond the values") end
    if set then places[#places + 1] = i end
  end
  local first = #values
  for i = 1, count do values[first + i], classes[first + i] = ZERO, "zero" end
  local groups = math.ceil(#places / 8)
  local signs = take(s, at, groups, stop, "the signs")
  at = at + groups
  local codes = take(s, at, math.ceil(groups / 2), stop, "the codes")
  at = at + math.ceil(groups / 2)
  if groups % 2 == 1 and codes:byte(-1) >= 16 then refuse("dropped", "groups", "spare code bits are not 0") end
  for g = 0, groups - 1 do
    local planes, raw = bits(codes:byte(math.floor(g / 2) + 1), g % 2 * 4, 4), 0
    if planes == 15 then
      local head = take(s, at, 2, stop, "a group's raw map")
      raw, planes = head:byte(1, 2)
      at = at + 2
      if planes > 14 then refuse("dropped", "groups", string.format("a group has %d planes", planes)) end
    end
    local plane = take(s, at, planes, stop, "a plane")
    at = at + planes
    for j = 0, 7 do
      local place = places[8 * g + j + 1]
      if bits(raw, j, 1) == 1 then
        local bytes = take(s, at, 4, stop, "a raw item")
        at = at + 4
        if place then values[first + place + 1], classes[first + place + 1] = bytes, "raw" end
      elseif place then
        local v = 0
        for i = 0, planes - 1 do v = v + bits(plane:byte(i + 1), j, 1) * 2 ^ i end
        if mode == 3 then v = v - 1 end
        if v >= 0 then
          values[first + place + 1] = float(bits(signs:byte(g + 1), j, 1), 2 * v + 1, p.y)
          classes[first + place + 1] = "coded"
        end
      end
    end
  end
  return at, mode, #places
end

-- Codec and parameters out of byte 1 and bytes 6 and 7 of a segment header [5.2]; nil if a decoder
-- must refuse them.
local function profile(codec, first, second)
  local p = { codec = codec }
  if codec == 1 then
    p.b, p.k, p.x = math.floor(first / 16), first % 16, i8(second)
    if p.b < 1 or p.b > 14 or p.k < math.max(0, p.b - 7) or p.k > p.b or p.x < -80 then return nil end
    p.bound = 2 ^ (p.x - p.b)
  elseif codec == 2 then
    p.y = i8(second)
    if first ~= 0 or p.y < -94 or p.y > 111 then return nil end
    p.bound = 2 ^ p.y
  else
    return nil
  end
  return p
end

-- The profile of the preference, which is written as FORMAT.md's examples are.
local function configured()
  local b, k, x = prefs.in_place:match("b=(%d+) k=(%d+) x=(-?%d+)")
  if b then return profile(1, tonumber(b) * 16 + tonumber(k), tonumber(x) % 256) end
  local y = prefs.in_place:match("y=(-?%d+)")
  return y and profile(2, 0, tonumber(y) % 256)
end

-- Frames
-- --------------------------------------------------------------------------------------------------------------

-- Headers of a frame, or nil if it is not IP to a receiver. What is contradictory or not understood
-- stands in `refused`.
local function parse(s)
  local len, at, vlans = #s, 12, 0
  if len < 14 then return nil end
  while vlans < 2 and (u16(s, at) == 0x8100 or u16(s, at) == 0x88a8) do
    at, vlans = at + 4, vlans + 1
    if at + 2 > len then return nil end
  end
  local ether_type = u16(s, at)
  local p = { frame_len = len, ip = at + 2, vlans = vlans, link = s:sub(13, at) }
  if p.ip + 2 > len then return nil end
  local version = math.floor(u8(s, p.ip) / 16)
  if not (ether_type == 0x0800 and version == 4 or ether_type == 0x86dd and version == 6) then return nil end
  if p.ip + (version == 4 and 20 or 40) > len then return nil end
  p.version = version
  p.tos = version == 4 and u8(s, p.ip + 1) or math.floor(u16(s, p.ip) / 16) % 256
  local _, refused = attempt(function()
    local function malformed(text) refuse("dropped", "malformed", text) end
    local protocol
    if version == 4 then
      local header, total = u8(s, p.ip) % 16 * 4, u16(s, p.ip + 2)
      if header < 20 or header > total then malformed("the IPv4 header's length contradicts itself") end
      p.stop = p.ip + total
      if u16(s, p.ip + 6) % 16384 ~= 0 then refuse("untouched", "fragment", "a fragment") end
      p.l4, protocol = p.ip + header, u8(s, p.ip + 9)
      p.ip_checksum = p.l4 <= len and folded(sum16(s, p.ip, p.l4)) == 0xffff
      p.source, p.target = s:sub(p.ip + 13, p.ip + 16), s:sub(p.ip + 17, p.ip + 20)
    else
      p.stop, p.l4, protocol = p.ip + 40 + u16(s, p.ip + 4), p.ip + 40, u8(s, p.ip + 6)
      p.source, p.target, p.ip_checksum = s:sub(p.ip + 9, p.ip + 24), s:sub(p.ip + 25, p.ip + 40), true
      local count = 0
      while protocol == 0 or protocol == 43 or protocol == 60 do
        if protocol == 0 and count > 0 or count == 4 then
          refuse("untouched", "protocol", "an extension header that is not understood")
        end
        if p.l4 + 4 > len then malformed("an extension header is cut short") end
        local header = 8 + 8 * u8(s, p.l4 + 1)
        if protocol == 43 and u8(s, p.l4 + 3) ~= 0 then refuse("untouched", "protocol", "segments are left") end
        local option, stop = p.l4 + 2, p.l4 + header
        while protocol == 60 and stop <= len and option < stop do
          if u8(s, option) == 0xc9 then refuse("untouched", "protocol", "a home address") end
          option = option + ((u8(s, option) == 0 or option + 1 == stop) and 1 or 2 + u8(s, option + 1))
        end
        protocol, p.l4, count = u8(s, p.l4), p.l4 + header, count + 1
      end
      if protocol == 44 then refuse("untouched", "fragment", "a fragment") end
    end
    if protocol ~= TCP and protocol ~= UDP then refuse("untouched", "protocol", "neither TCP nor UDP") end
    p.protocol = protocol
    if p.l4 + (protocol == TCP and 20 or 8) > len then malformed("the TCP or UDP header is cut short") end
    p.ports = s:sub(p.l4 + 1, p.l4 + 4)
    p.checksum_at = p.l4 + (protocol == TCP and 16 or 6)
    if protocol == TCP then
      p.payload = p.l4 + math.floor(u8(s, p.l4 + 12) / 16) * 4
      p.flags = u8(s, p.l4 + 13)
      if p.payload < p.l4 + 20 or p.payload > math.min(p.stop, len) then
        malformed("the TCP data offset contradicts the packet")
      end
    else
      p.payload, p.udp_len = p.l4 + 8, u16(s, p.l4 + 4)
      if p.udp_len < 8 or p.l4 + p.udp_len > p.stop then malformed("the UDP length contradicts the packet") end
      p.short_udp = p.l4 + p.udp_len < p.stop
    end
  end)
  p.refused = refused
  return p
end

local function flag(p, bit) return p.protocol == TCP and bits(p.flags, bit, 1) == 1 end
local function is_syn(p) return p.protocol == TCP and flag(p, 1) end
local function bad_flags(p) return flag(p, 1) or flag(p, 2) or flag(p, 5) end

-- The sum of section 5.3: 0xffff of an ordinary segment, 0x6777 of a compressed one.
local function l4_sum(s, p)
  local len = p.stop - p.l4
  local addresses = sum16(p.source .. p.target, 0, #p.source * 2)
  return folded(addresses + p.protocol + len + sum16(s, p.l4, p.stop))
end

-- The segment header of section 5.2.
local function segment_header(s, p)
  local function bad(text) refuse("dropped", "segment-header", text) end
  if p.payload + 8 > math.min(p.stop, #s) then bad("the segment header is cut short") end
  local at = p.payload
  local header = { at = at, flags = u8(s, at + 2), head_len = u8(s, at + 3), raw_len = u16(s, at + 4) }
  header.profile = profile(u8(s, at + 1), u8(s, at + 6), u8(s, at + 7))
  if u8(s, at) ~= 1 then bad(string.format("version %d is not known", u8(s, at))) end
  if u8(s, at + 1) ~= 1 and u8(s, at + 1) ~= 2 then bad(string.format("codec %d is not known", u8(s, at + 1))) end
  if not header.profile then bad("the codec's parameters are not valid") end
  if bits(header.flags, 1, 1) == 1 then bad("bit 1 of the flags is set") end
  if header.raw_len < header.head_len + 4 then bad("there is no room for a value: raw_len < head_len + 4") end
  if header.flags % 2 == 1 and p.protocol == TCP then bad("TCP has a checksum always, and bit 0 of the flags is set") end
  if bits(header.flags, 2, 6) == bits(prefs.mark, 2, 6) then bad("the original type of service is the mark") end
  return header
end

-- Head, values and tail behind `at`. What was read so far stays in the result if the rest is
-- refused.
local function payload(s, at, stop, header, padding)
  local body = { values = {}, classes = {}, parts = {}, head = at }
  local _, refused = attempt(function()
    take(s, at, header.head_len, stop, "the head")
    at = at + header.head_len
    body.coded, body.count = at, math.floor((header.raw_len - header.head_len) / 4)
    local codec_1 = header.profile.codec == 1
    while #body.values < body.count do
      local first, count = #body.values, math.min(body.count - #body.values, codec_1 and LANES or SECTION_VALUES)
      local stop_at, kind, items =
        (codec_1 and group or section)(s, at, stop, count, header.profile, body.values, body.classes)
      body.parts[#body.parts + 1] =
        { at = at, len = stop_at - at, first = first, count = count, kind = kind, items = items }
      at = stop_at
    end
    body.tail, body.tail_len = at, (header.raw_len - header.head_len) % 4
    take(s, at, body.tail_len, stop, "the tail")
    body.stop = at + body.tail_len
    if body.stop < stop and not padding then
      refuse("dropped", "excess", plural(stop - body.stop, "byte") .. " left over behind the tail")
    end
  end)
  body.refused = refused
  return body
end

-- Whether a frame is *ours*, whatever its checksum and UDP length say [6.1].
local function ours(header, body, p)
  if not header or bad_flags(p) or body.refused then return false end
  return p.protocol == TCP or not NO_UDP[u16(p.ports, 2)]
end

-- What a receiver does with a frame that carries the mark [6.1]: nil if it restores it, else the
-- refusal.
local function routed_refusal(s, p, header, header_refused, body)
  local is_ours = ours(header, body, p)
  local function answer(outcome, reason, text) return { outcome = outcome, reason = reason, text = text } end
  if p.refused and p.refused.outcome == "untouched" then return p.refused end
  if not p.refused and p.short_udp then
    local text = "the UDP datagram ends before its IP packet"
    return is_ours and answer("dropped", "malformed", text) or answer("untouched", "udp-options", text)
  end
  if p.refused then return p.refused end
  if p.stop > p.frame_len then return answer("dropped", "malformed", "the frame is shorter than its IP length") end
  if not p.ip_checksum then return answer("dropped", "ip-checksum", "the IPv4 header checksum is wrong") end
  if p.protocol == UDP and u16(s, p.checksum_at) == 0 then
    if is_ours then return answer("dropped", "no-checksum", "a host would accept it unseen: it has no checksum") end
    return answer("untouched", "foreign-mark", "it has no checksum, and no engine made it")
  end
  if p.sum == 0 or p.sum == 0xffff then
    if is_ours then
      return answer("dropped", "recomputed", "a box on the way computed its checksum anew, so a host would accept it")
    end
    return answer("untouched", "foreign-mark", "its checksum is an ordinary one, and no engine made it")
  end
  if p.sum ~= MAGIC then return answer("dropped", "l4-checksum", "it was damaged on the way") end
  if bad_flags(p) then return answer("dropped", "malformed", "SYN, RST or URG is set") end
  return header_refused or body.refused
end

-- The tree
-- ------------------------------------------------------------------------------------------------------------

-- The capabilities that a connection's SYNs advertised, by the end that did; and what that means
-- for each frame, since Wireshark reads frames a second time in any order.
local advertised, in_place_of = {}, {}
function gradwire.init() advertised, in_place_of = {}, {} end

local function show_profile(tree, tvb, at, p)
  if p.codec == 1 then
    tree:add(f.b, tvb(at, 1), p.b)
    tree:add(f.k, tvb(at, 1), p.k)
    tree:add(f.x, tvb(at + 1, 1), p.x)
  else
    tree:add(f.y, tvb(at + 1, 1), p.y)
  end
end

-- Head, groups or sections with their values, tail, and the payload that the receiving host gets.
local function show_body(tree, tvb, s, body, header, framing_len)
  local restored
  if not body.refused then
    local bytes = s:sub(body.head + 1, body.coded) .. table.concat(body.values) .. s:sub(body.tail + 1, body.stop)
    restored = ByteArray.new(bytes, true):tvb("gradwire: restored payload")
    tree:add(f.restored, restored()):set_generated()
  end
  tree:add(f.bound, header.profile.bound):set_generated()
  tree:add(f.values, body.count or 0):set_generated()
  if header.head_len > 0 and body.coded then tree:add(f.head, tvb(body.head, header.head_len)) end
  local left = prefs.max_values
  for number, part in ipairs(body.parts) do
    local codec_1 = header.profile.codec == 1
    local sub = tree:add(codec_1 and f.group or f.section, tvb(part.at, part.len), number - 1)
    sub:append_text(string.format(": values %d to %d", part.first, part.first + part.count - 1))
    if codec_1 then
      sub:add(f.tags, tvb(part.at, 2), part.kind)
    else
      sub:add(f.mode, tvb(part.at, 1), part.kind)
      sub:add(f.items, part.items):set_generated()
    end
    for i = part.first + 1, math.min(part.first + part.count, part.first + left) do
      local value = restored and restored(header.head_len + 4 * (i - 1), 4)
        or ByteArray.new(body.values[i], true):tvb("gradwire: value")()
      sub:add_le(f.value, value):append_text(string.format(" (%d, %s)", i - 1, body.classes[i]))
      left = left - 1
    end
  end
  if not body.refused then
    if body.tail_len > 0 then tree:add(f.tail, tvb(body.tail, body.tail_len)) end
    tree:add(f.ratio, header.raw_len / (framing_len + body.stop - body.head)):set_generated()
  end
end

local function show_outcome(tree, pinfo, refusal, values)
  local outcome = refusal and refusal.outcome or "restored"
  tree:add(f.outcome, outcome):set_generated()
  if refusal then
    tree:add(f.reason, refusal.reason):set_generated()
    local dropped = refusal.outcome == "dropped"
    tree:add_proto_expert_info(dropped and note.dropped or note.foreign,
      (dropped and "A receiver drops this frame: " or "A receiver passes this frame untouched: ") .. refusal.text)
    pinfo.cols.info:append(string.format(" [gradwire: %s, %s]", outcome, refusal.reason))
  else
    pinfo.cols.info:append(string.format(" [gradwire: %s]", plural(values, "value")))
  end
end

local CHECKSUM = {
  [MAGIC] = "Right for a compressed segment. Wireshark calls the TCP or UDP checksum bad, and so does a host without a " ..
    "decompressor, which therefore drops the segment: the field is what RFC 9293 asks for plus 0x6777, on purpose",
  [0xffff] = "An ordinary segment's checksum. No engine sends a compressed segment with it: somebody computed it anew",
}

local function show_routed(tvb, pinfo, root, s, p)
  local at = p.payload and p.payload <= #s and p.payload or math.min(p.ip, #s - 1)
  local tree = root:add(gradwire, tvb(at), "gradwire: compressed segment")
  tree:add(f.framing, "routed"):set_generated()
  local header, header_refused, body
  if not p.refused then
    if p.stop <= #s then
      p.sum = l4_sum(s, p)
      local item = tree:add(f.sum, tvb(p.checksum_at, 2), p.sum)
      item:append_text(string.format(" (a compressed segment's is 0x%04x)", MAGIC))
      tree:add_proto_expert_info(note.checksum,
        CHECKSUM[p.sum] or "Neither a compressed segment's checksum nor an ordinary one: the segment was damaged")
    end
    local stop = math.min(p.stop, #s)
    header, header_refused = attempt(segment_header, s, p)
    local bytes = math.min(8, stop - p.payload)
    local names = { f.version, f.codec, f.tos, f.head_len }
    for i = 1, math.min(4, bytes) do tree:add(names[i], tvb(p.payload + i - 1, 1)) end
    if bytes >= 3 then tree:add(f.no_checksum, tvb(p.payload + 2, 1), u8(s, p.payload + 2) % 2) end
    if bytes >= 6 then tree:add(f.raw_len, tvb(p.payload + 4, 2)) end
    if header then
      show_profile(tree, tvb, p.payload + 6, header.profile)
      body = payload(s, p.payload + 8, stop, header, false)
      show_body(tree, tvb, s, body, header, 8)
    end
  end
  show_outcome(tree, pinfo, routed_refusal(s, p, header, header_refused, body), body and body.count)
end

-- A tagged frame that is shorter than its IP length [5.4, 6.2].
local function show_in_place(tvb, pinfo, root, s, p, of_far_end)
  local tree = root:add(gradwire, tvb(p.payload), "gradwire: compressed segment")
  tree:add(f.framing, "in-place"):set_generated()
  tree:add_proto_expert_info(note.unverified, "The checksum is that of the original payload, which is not here. No checksum " ..
    "covers the compressed bytes, so Wireshark can verify none")
  if not of_far_end then
    tree:add_proto_expert_info(note.unknown, "No SYN in this capture says the parameters: set the preference \"In-place " ..
      "profile\" (gradwire.in_place)")
    return
  end
  local header = { profile = of_far_end, head_len = p.protocol == UDP and prefs.udp_offset or 0 }
  header.raw_len = (p.protocol == TCP and p.stop or p.l4 + p.udp_len) - p.payload
  local refusal
  if bad_flags(p) then
    refusal = { outcome = "untouched", reason = "tcp-flags", text = "SYN, RST or URG is set" }
  elseif not p.ip_checksum then
    refusal = { outcome = "dropped", reason = "ip-checksum", text = "the IPv4 header checksum is wrong" }
  elseif header.raw_len < header.head_len + 4 then
    refusal = { outcome = "dropped", reason = "malformed", text = "there is no room for the head and a value" }
  end
  if refusal then return show_outcome(tree, pinfo, refusal) end
  tree:add(f.codec, of_far_end.codec):set_generated()
  tree:add(f.raw_len, header.raw_len):set_generated()
  local padded = #s >= 60 and #s <= 60 + 4 * p.vlans
  local body = payload(s, p.payload, #s, header, padded)
  show_body(tree, tvb, s, body, header, 0)
  show_outcome(tree, pinfo, body.refused, body.count)
end

-- The handshake's option on a SYN [5.5]. Returns what it says of in-place framing, if it is valid.
local function show_options(tvb, root, s, p)
  local at, found, binds, broken = p.l4 + 20, {}, false, false
  while at < p.payload do
    local kind = u8(s, at)
    local len = (kind == 0 or kind == 1) and 1 or at + 1 < p.payload and u8(s, at + 1) or 0
    if kind == 0 then break end
    if len == 0 or kind ~= 1 and len < 2 or at + len > p.payload then
      broken = true
      break
    end
    if kind == 19 or kind == 29 or kind == 30 then binds = true end
    if (kind == 253 or kind == 254) and len >= 4 and u16(s, at + 2) == MAGIC then
      found[#found + 1] = { at = at, len = len, kind = kind }
    end
    at = at + len
  end
  local option = found[1]
  if not option then return nil end
  local tree = root:add(gradwire, tvb(option.at, option.len), "gradwire: handshake")
  tree:add(f.option, tvb(option.at, option.len))
  local function invalid(text)
    tree:add_proto_expert_info(note.option, "A receiver hands the SYN on as it is: " .. text)
  end
  if option.len ~= 10 or option.kind ~= 253 then return invalid("the option's kind or length is another") end
  at = option.at + 4
  local framings = u8(s, at)
  tree:add(f.version, tvb(at, 1), math.floor(framings / 16))
  tree:add(f.option_routed, tvb(at, 1), framings % 2 == 1)
  tree:add(f.option_in_place, tvb(at, 1), bits(framings, 1, 1) == 1)
  tree:add(f.option_codecs, tvb(at + 1, 1))
  tree:add(f.option_in_place_codec, tvb(at + 2, 1))
  tree:add(f.option_in_place_parameters, tvb(at + 3, 2))
  tree:add(f.option_alignment, tvb(at + 5, 1))
  if math.floor(framings / 16) ~= 1 then return invalid("its version is not known") end
  if #found > 1 then return invalid("there are two of them") end
  if binds or broken then return invalid("an option beside it binds the payload, or cannot be read") end
  if flag(p, 0) or flag(p, 2) then return invalid("RST or FIN is set") end
  if not p.ip_checksum or l4_sum(s, p) ~= 0xffff then return invalid("a checksum is wrong") end
  return bits(framings, 1, 1) == 1 and profile(u8(s, at + 2), u8(s, at + 3), u8(s, at + 4)) or nil
end

function gradwire.dissector(tvb, pinfo, root)
  -- Only Ethernet has both; fields of other protocols are not there when frames are read for the
  -- first time.
  if tostring(pinfo.dl_src) == "" or tostring(pinfo.dl_dst) == "" then return end
  local s = tvb:raw(0, tvb:len())
  local p = parse(s)
  if not p then return end
  local marked = bits(p.tos, 2, 6) == bits(prefs.mark, 2, 6)
  local tagged = true
  for bit = 0, 7 do
    tagged = tagged and (bits(prefs.mask, bit, 1) == 0 or bits(p.tos, bit, 1) == bits(prefs.tos, bit, 1))
  end
  local cut = tvb:len() < tvb:reported_len()
  if cut and (marked or tagged) then
    local tree = root:add(gradwire, tvb(p.ip), "gradwire")
    tree:add_proto_expert_info(note.cut, "The capture has only a part of this frame: capture with a snap length of 0")
    return
  end
  if marked then return show_routed(tvb, pinfo, root, s, p) end
  if not p.refused and is_syn(p) and p.stop <= #s then
    local capability = show_options(tvb, root, s, p)
    if not pinfo.visited then advertised[p.link .. p.source .. p.ports .. p.target] = capability or false end
    return
  end
  if not tagged or p.refused then return end
  if p.stop > #s then
    if not pinfo.visited then
      local back = p.link .. p.target .. p.ports:sub(3, 4) .. p.ports:sub(1, 2) .. p.source
      in_place_of[pinfo.number] = p.protocol == TCP and advertised[back] or configured() or false
    end
    return show_in_place(tvb, pinfo, root, s, p, in_place_of[pinfo.number])
  end
  if p.payload < p.stop then
    root:add(gradwire, tvb(p.payload, p.stop - p.payload), "gradwire: tagged, and not compressed")
      :add(f.tagged, true):set_generated()
  end
end

register_postdissector(gradwire)
