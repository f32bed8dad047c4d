-- An operator sends a dead letter's command on as a new job. Answers: done, taken.
-- KEYS job events deadlines next   ARGV job_id tenant entry_id submitted_at deadline stage command event ttl_s
if redis.call('EXISTS', KEYS[1]) == 1 then return 'taken' end
add_event(KEYS[2], 'stage', ARGV[8], ARGV[9])
local next_id = redis.call('XADD', KEYS[4], '*', 'data', ARGV[7])
redis.call('HSET', KEYS[1], 'status', 'running', 'stage', ARGV[6], 'at', KEYS[4] .. ' ' .. next_id, 'tenant', ARGV[2],
  'entry_id', ARGV[3], 'submitted_at', ARGV[4], 'deadline', ARGV[5])
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[1])
return 'done'
