-- read_payload: read the payload of the entry that a run has seen, for a load that may find it unchanged.
--
-- KEYS[1]  entry
-- ARGV[1]  nonce               8 bytes of the entry's header
--
-- returns  the bytes after the header; '' if this entry is gone
-- keeps    nothing is changed
local entry = read_entry(KEYS[1])
if not entry or entry.nonce ~= ARGV[1] then
  return ''
end
return redis.call('GETRANGE', KEYS[1], entry.header_length, -1)
