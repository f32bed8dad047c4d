-- The reaper or a client ends a job from outside and takes its current command off its stream, whoever works on it.
-- Answers: done, ended, moved (the job went on since it was read: read again).
-- KEYS job events deadlines results stream spent   ARGV job_id at group id status outcome ttl_s results_max_len
local found = redis.call('HMGET', KEYS[1], 'status', 'at')
if found[1] ~= 'running' then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return 'ended'
end
if (found[2] or '') ~= ARGV[2] then return 'moved' end
end_job(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[5], ARGV[6], ARGV[7], ARGV[8])
book(KEYS[6], ARGV[6])
redis.pcall('XACK', KEYS[5], ARGV[3], ARGV[4])
redis.pcall('XDEL', KEYS[5], ARGV[4])
return 'done'
