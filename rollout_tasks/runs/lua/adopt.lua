-- Checks whether a run's submitter has died, and decides the run's state if so.
-- KEYS[1] the run's key   ARGV[1] seconds without a sign of life after which the submitter counts as dead
-- Returns the state the run is in now: 'submitting' while the submitter lives; 'running' when everything is stored, so that the
-- workers can do without it; 'half_submitted' when it is not, so that the run must be resumed; any other unchanged.
local run = KEYS[1]
local described = redis.call('HMGET', run, 'state', 'submitter_beat', 'total', 'created')
local state = described[1]
if state ~= 'submitting' and state ~= 'half_submitted' then return state end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local beat = tonumber(described[2] or described[4])
if beat > now then redis.call('HSET', run, 'submitter_beat', string.format('%.6f', now)) end -- the clock was set back, see claim.lua
if now - beat < tonumber(ARGV[1]) then return state end
local stored = redis.call('SCARD', run .. ':pending') + redis.call('HLEN', run .. ':results')
if stored == tonumber(described[3]) then
  state = 'running'
  redis.call('HSET', run, 'state', state, 'chord_spent', '1')
else
  state = 'half_submitted'
  redis.call('HSET', run, 'state', state)
end
return state
