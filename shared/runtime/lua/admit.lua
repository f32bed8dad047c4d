-- Gateway: a question becomes a job. Its hash has no TTL until it ends, which the deadlines guarantee.
-- Answers: done, fenced, duplicate (same id, same tenant), taken (another tenant's id).
-- KEYS inbox job events deadlines next   ARGV group id job_id tenant submitted_at deadline stage command event ttl_s consumer
if not held(KEYS[1], ARGV[1], ARGV[2], ARGV[#ARGV]) then return 'fenced' end
local tenant = redis.call('HGET', KEYS[2], 'tenant')
if tenant then
  if tenant ~= ARGV[4] then return 'taken' end
  done(KEYS[1], ARGV[1], ARGV[2])
  return 'duplicate'
end
add_event(KEYS[3], 'stage', ARGV[9], ARGV[10])
local next_id = redis.call('XADD', KEYS[5], '*', 'data', ARGV[8])
redis.call('HSET', KEYS[2], 'status', 'running', 'stage', ARGV[7], 'at', KEYS[5] .. ' ' .. next_id, 'tenant', ARGV[4],
  'entry_id', ARGV[2], 'submitted_at', ARGV[5], 'deadline', ARGV[6])
redis.call('ZADD', KEYS[4], ARGV[6], ARGV[3])
done(KEYS[1], ARGV[1], ARGV[2])
return 'done'
