-- A delivery without a job (ingestion) is done; its event tells whoever follows the run. Answers: done, fenced.
-- KEYS inbox events dead   ARGV group id event dead_letter ttl_s dead_max_len consumer
if not held(KEYS[1], ARGV[1], ARGV[2], ARGV[#ARGV]) then return 'fenced' end
add_event(KEYS[2], 'stage', ARGV[3], ARGV[5])
if ARGV[4] ~= '' then redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[6], '*', 'data', ARGV[4]) end
done(KEYS[1], ARGV[1], ARGV[2])
return 'done'
