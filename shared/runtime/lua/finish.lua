-- A delivery ends its job, with a dead letter where ARGV[6] is one. Answers: done, fenced, unknown, ended, superseded.
-- KEYS inbox job events deadlines results dead spent
-- ARGV group id job_id status outcome dead_letter ttl_s results_max_len dead_max_len consumer
if not held(KEYS[1], ARGV[1], ARGV[2], ARGV[#ARGV]) then return 'fenced' end
local why = objection(KEYS[2], KEYS[1], ARGV[2])
if why == 'ended' then done(KEYS[1], ARGV[1], ARGV[2]) end
if why ~= '' then return why end
end_job(KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[3], ARGV[4], ARGV[5], ARGV[7], ARGV[8])
book(KEYS[7], ARGV[5])
if ARGV[6] ~= '' then redis.call('XADD', KEYS[6], 'MAXLEN', '~', ARGV[9], '*', 'data', ARGV[6]) end
done(KEYS[1], ARGV[1], ARGV[2])
return 'done'
