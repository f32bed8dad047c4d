-- Notes whether an answer held, and switches generation off where too few of the latest did. Answers their share.
-- KEYS: groundedness control. ARGV: 1 or 0, how many to look at, lowest share.
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('EXPIRE', KEYS[1], 7 * 86400)
local noted, held = redis.call('LRANGE', KEYS[1], 0, -1), 0
for _, each in ipairs(noted) do held = held + each end
local share = held / #noted
if #noted >= tonumber(ARGV[2]) and share < tonumber(ARGV[3]) then
  redis.call('HSETNX', KEYS[2], 'generation', string.format('off: groundedness %.2f', share))
end
return string.format('%.4f', share)
