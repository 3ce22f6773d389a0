-- Returns a run's progress; changes nothing.
-- KEYS[1] the run's key   ARGV[1] seconds without a beat after which a rollout's holder counts as dead
-- Returns {} when the run is gone, else {state, total, created, queues, problem, rollouts without a verdict, rollouts with one,
-- rollouts being worked on, {count, value, ...}}.
local run = KEYS[1]
local described = redis.call('HMGET', run, 'state', 'total', 'created', 'queues', 'problem')
if not described[1] then return {} end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local fresh = now - tonumber(ARGV[1])
return {
  described[1], described[2] or '0', described[3] or '0', described[4] or '', described[5] or '',
  redis.call('SCARD', run .. ':pending'), redis.call('HLEN', run .. ':results'),
  -- A beat of later is of before the clock was set back: find_lost.lua sees to it, see claim.lua.
  redis.call('ZCOUNT', run .. ':alive', string.format('%.6f', fresh), string.format('%.6f', now)), redis.call('HGETALL', run .. ':counts'),
}
