-- Counts the rollouts that are held by executions which have gone silent, as their worker was killed; changes nothing.
-- KEYS[1] the run's key   ARGV[1] seconds without a beat after which a rollout's holder counts as dead
-- ARGV[2] seconds without a beat after which its message is in a queue again
-- Returns {how many, seconds since the last of them gave a beat}; '0' seconds when there are none.
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local fresh = string.format('(%.6f', now - tonumber(ARGV[1]))
local gone = string.format('%.6f', now - tonumber(ARGV[2]))
local alive = KEYS[1] .. ':alive'
local last = redis.call('ZREVRANGEBYSCORE', alive, fresh, gone, 'WITHSCORES', 'LIMIT', 0, 1)[2]
return {redis.call('ZCOUNT', alive, gone, fresh), string.format('%.6f', last and now - tonumber(last) or 0)}
