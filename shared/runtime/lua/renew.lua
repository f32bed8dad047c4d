-- Heartbeat: reset the idle time of the entries this consumer still owns. Answers the ids it owns no more: finished,
-- cancelled, reaped, or claimed by another worker while this one was paused, which must not steal them back.
-- KEYS inbox   ARGV group consumer id…
local lost = {}
for i = 3, #ARGV do
  local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])
  if pending.err or #pending == 0 then
    lost[#lost + 1] = ARGV[i]
  else
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
  end
end
return lost
