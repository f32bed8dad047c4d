-- A delivery that belongs to no living job becomes a dead letter. Answers: done, fenced.
-- KEYS inbox dead   ARGV group id dead_letter dead_max_len consumer
if not held(KEYS[1], ARGV[1], ARGV[2], ARGV[#ARGV]) then return 'fenced' end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', 'data', ARGV[3])
done(KEYS[1], ARGV[1], ARGV[2])
return 'done'
