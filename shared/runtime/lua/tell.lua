-- An event of a job while a stage works on it. Answers: done, or ended where the job runs no more.
-- KEYS job events   ARGV kind data ttl_s
if redis.call('HGET', KEYS[1], 'status') ~= 'running' then return 'ended' end
add_event(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
return 'done'
