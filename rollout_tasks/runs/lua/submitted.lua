-- Records that the submitter has stored everything, or sent everything.
-- KEYS[1] the run's key   ARGV[1] token of the submission   [2] stored | sent
-- Returns the run's state: 'running' once everything is sent; 'incomplete' when rollouts are missing in the store, because
-- Redis lost some; 'superseded', 'unknown'. Safe to repeat after a lost reply.
local run = KEYS[1]
local described = redis.call('HMGET', run, 'state', 'submission', 'total')
local state = described[1]
if not state then return 'unknown' end
if described[2] ~= ARGV[1] then return 'superseded' end
if state ~= 'submitting' and state ~= 'half_submitted' then return state end
local stored = redis.call('SCARD', run .. ':pending') + redis.call('HLEN', run .. ':results')
if stored ~= tonumber(described[3]) then return 'incomplete' end
if ARGV[2] == 'sent' then state = 'running' else state = 'submitting' end
redis.call('HSET', run, 'state', state)
return state
