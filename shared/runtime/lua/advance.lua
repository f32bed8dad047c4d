-- A stage hands the job on. Answers: done, fenced, unknown, ended, superseded.
-- KEYS inbox job events next   ARGV group id stage command event ttl_s consumer
if not held(KEYS[1], ARGV[1], ARGV[2], ARGV[#ARGV]) then return 'fenced' end
local why = objection(KEYS[2], KEYS[1], ARGV[2])
if why == 'ended' then done(KEYS[1], ARGV[1], ARGV[2]) end
if why ~= '' then return why end
add_event(KEYS[3], 'stage', ARGV[5], ARGV[6])
local next_id = redis.call('XADD', KEYS[4], '*', 'data', ARGV[4])
redis.call('HSET', KEYS[2], 'stage', ARGV[3], 'at', KEYS[4] .. ' ' .. next_id)
done(KEYS[1], ARGV[1], ARGV[2])
return 'done'
