-- Take over deliveries whose worker fell silent. Answers {cursor, {{id, fields, deliveries}, …}}; the count includes this one.
-- KEYS inbox   ARGV group consumer claim_after_ms cursor count
local reply = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], 'COUNT', ARGV[5])
local claimed = {}
for i, entry in ipairs(reply[2]) do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], entry[1], entry[1], 1)
  claimed[i] = {entry[1], entry[2], pending[1][4]}
end
return {reply[1], claimed}
