-- Returns how many seconds ago a run's finaliser gave its last beat, as text; 'none' when nobody finalises the run.
-- KEYS[1] the run's key
local state, beat = unpack(redis.call('HMGET', KEYS[1], 'state', 'finalizer_beat'))
if state ~= 'finalizing' then return 'none' end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local silent = now - tonumber(beat or '0')
if silent < 0 then -- the clock was set back, see claim.lua
  redis.call('HSET', KEYS[1], 'finalizer_beat', string.format('%.6f', now))
  silent = 0
end
return string.format('%.6f', silent)
