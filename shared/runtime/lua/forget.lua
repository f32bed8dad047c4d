-- Remove consumers that hold nothing and gave no sign for idle_ms. DELCONSUMER drops what a consumer still holds, so the
-- look and the removal must be one step. Answers the names removed.
-- KEYS inbox   ARGV group idle_ms
local removed = {}
for _, raw in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local consumer = {}
  for i = 1, #raw, 2 do consumer[raw[i]] = raw[i + 1] end
  if consumer['pending'] == 0 and consumer['idle'] >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer['name'])
    removed[#removed + 1] = consumer['name']
  end
end
return removed
