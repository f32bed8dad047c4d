-- A worker stops: hand back, uncounted, whatever was delivered to it and never begun; leave the group if that was nothing.
-- One step, because DELCONSUMER drops what a consumer holds. Answers how many were handed back.
-- KEYS inbox   ARGV group consumer claim_after_ms
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000, ARGV[2])
if pending.err then return 0 end
for _, entry in ipairs(pending) do
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, entry[1], 'IDLE', ARGV[3],
    'RETRYCOUNT', math.max(0, entry[4] - 1), 'JUSTID')
end
if #pending == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) end
return #pending
