-- Takes one call of ARGV[3] tokens from both limits, or from neither: the milliseconds to wait, 0 where it was taken.
-- KEYS: requests, tokens. ARGV: requests a minute, tokens a minute, tokens of this call; a limit of 0 is none.
--
-- The generic cell rate algorithm: a key holds the moment at which everything taken so far is paid off. A tenth of a
-- minute's worth may be taken at once; the pace is set so that this and a minute of it stay within the limit.
local BURST_MS = 6000
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local costs = { 1, tonumber(ARGV[3]) }
local paid, wait = {}, 0
for n = 1, 2 do
  local per_minute = tonumber(ARGV[n])
  if per_minute > 0 then
    local cost = costs[n] * (60000 + BURST_MS) / per_minute
    local due = math.max(now, tonumber(redis.call('GET', KEYS[n]) or 0))
    wait = math.max(wait, due - math.max(0, BURST_MS - cost) - now)
    paid[n] = due + cost
  end
end
if wait > 0 then
  return math.ceil(wait)
end
for n, due in pairs(paid) do
  redis.call('SET', KEYS[n], string.format('%.3f', due), 'PX', math.ceil(due - now) + 1)
end
return 0
