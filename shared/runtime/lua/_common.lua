-- Put in front of every step. A step reads and decides first and writes after, the event first: a script that Redis
-- refuses for lack of memory, or for a key of the wrong type, is refused before anything has changed.

-- Whether this consumer still holds this entry. False for a zombie whose delivery was claimed by another, and after
-- FLUSHALL, when there is nothing left to finish.
local function held(stream, group, id, consumer)
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  return pending.err == nil and #pending > 0
end

local function done(stream, group, id)
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
end

local function add_event(events, kind, data, ttl_s)
  redis.call('XADD', events, 'MAXLEN', '~', '20000', '*', 'type', kind, 'data', data)
  redis.call('EXPIRE', events, ttl_s)
end

-- The one place where a job becomes terminal: result entry, terminal event, hash, deadline.
local function end_job(job, events, deadlines, results, job_id, status, outcome, ttl_s, results_max_len)
  add_event(events, 'terminal', outcome, ttl_s)
  redis.call('XADD', results, 'MAXLEN', '~', results_max_len, '*', 'data', outcome)
  redis.call('HSET', job, 'status', status, 'outcome', outcome)
  redis.call('HDEL', job, 'at')
  redis.call('EXPIRE', job, ttl_s)
  redis.call('ZREM', deadlines, job_id)
end

-- What a job's models cost goes on its tenant's account of the day, together with the job's end: once, and surely.
local function book(spent, outcome)
  if string.find(outcome, '"usage":[]', 1, true) then return end
  for _, each in ipairs(cjson.decode(outcome).usage) do
    redis.call('HINCRBY', spent, 'calls', each.calls)
    redis.call('HINCRBY', spent, 'tokens', each.prompt_tokens + each.completion_tokens)
    if each.cost and each.cost ~= cjson.null then redis.call('HINCRBYFLOAT', spent, 'cost', each.cost) end
  end
  redis.call('EXPIRE', spent, 172800)
end

-- May this delivery move its job? '' if so; otherwise 'unknown' (no such job), 'ended' (reaped or cancelled meanwhile) or
-- 'superseded' (the job lives on with another command: this one was forged or is a copy).
local function objection(job, stream, id)
  local found = redis.call('HMGET', job, 'status', 'at')
  if not found[1] then return 'unknown' end
  if found[1] ~= 'running' then return 'ended' end
  if found[2] ~= stream .. ' ' .. id then return 'superseded' end
  return ''
end
