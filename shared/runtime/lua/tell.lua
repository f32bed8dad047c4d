-- An event of a job while a stage works on it. Answers: done, ended (the job runs no more), unknown (no such job: what
-- becomes of its command is for the step that ends the delivery to say).
-- KEYS job events   ARGV kind data ttl_s
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return 'unknown' end
if status ~= 'running' then return 'ended' end
add_event(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
return 'done'
