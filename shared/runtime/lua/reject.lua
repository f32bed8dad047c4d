-- Gateway: a question that can't become a job still gets its one terminal outcome. Answers: done, fenced, taken (the id
-- belongs to a job already, which must not be touched).
-- KEYS inbox job events deadlines results   ARGV group id job_id tenant outcome ttl_s results_max_len consumer
if not held(KEYS[1], ARGV[1], ARGV[2], ARGV[#ARGV]) then return 'fenced' end
if redis.call('EXISTS', KEYS[2]) == 1 then return 'taken' end
end_job(KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[3], 'failed', ARGV[5], ARGV[6], ARGV[7])
redis.call('HSET', KEYS[2], 'tenant', ARGV[4], 'stage', 'gateway', 'entry_id', ARGV[2])
done(KEYS[1], ARGV[1], ARGV[2])
return 'done'
