-- Let another worker claim an entry after idle_left_ms instead of the whole claim time. Answers 1, or 0 if not ours.
-- KEYS inbox   ARGV group consumer id claim_after_ms idle_left_ms
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2])
if pending.err or #pending == 0 then return 0 end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'IDLE', math.max(0, ARGV[4] - ARGV[5]), 'JUSTID')
return 1
