-- A host says that it is alive, and learns what its VMs are in. Ends what is due on the way.
--
-- ARGV[2]  host, ARGV[3]  its instance, ARGV[4]  how long it counts as alive (microseconds)
-- ARGV[5]  '1' to speak for the host from now on, unless another instance does and was heard lately; or the very instance
--          to replace, which the caller knows to have ended. A predecessor's free VMs are not granted any more: the caller
--          registers them anew. '0' for a mere sign of life.
-- ARGV[6]  the server process with which the host has compared what it knows of its VMs: it registered those anew that this
--          one may be wrong about. Until it says so, none of them is granted. '' when taking over.
--
-- Returns {0, another instance that speaks for the host, until when it counts as alive}, else {1, now, when the next timer ends, this server process,
-- {vm, state, fence, drained '1' or '0', retry_at or 0}, ...}.

local host = ARGV[2]
local instance = call('HGET', P .. ':hosts', host)
local takes_over = instance ~= ARGV[3]
if takes_over then
  local alive_until = tonumber(call('ZSCORE', P .. ':timers', 'host:' .. host) or 0)
  local may_replace = ARGV[5] == instance or (ARGV[5] == '1' and alive_until <= now)
  if instance and not may_replace then return { 0, instance, alive_until } end
  call('HSET', P .. ':hosts', host, ARGV[3])
  call('HDEL', P .. ':images', host) -- a predecessor's
  call('DEL', P .. ':work:' .. host)
end
local server = string.match(about_server(), 'run_id:(%x+)')
if takes_over or ARGV[6] == server then call('HSET', P .. ':servers', host, ARGV[6] == server and server or 'none yet') end
call('ZADD', P .. ':timers', now + ARGV[4], 'host:' .. host)
reap()
local lends_now = lends(host)
local reply = { 1, now, 0, server }
for _, vm in ipairs(call('SMEMBERS', P .. ':host:' .. host)) do
  local key = P .. ':vm:' .. vm
  local is = call('HMGET', key, 'state', 'fence', 'drained', 'retry_at')
  if takes_over then
    call('ZREM', P .. ':free', vm)
  elseif lends_now and is[1] == 'free' and not call('ZSCORE', P .. ':free', vm) then
    hand_on(vm)
    is = call('HMGET', key, 'state', 'fence', 'drained', 'retry_at')
  end
  reply[#reply + 1] = { vm, is[1], tonumber(is[2]), is[3] or '0', tonumber(is[4] or 0) }
end
reply[3] = tonumber(call('ZRANGE', P .. ':timers', 0, 0, 'WITHSCORES')[2])
return reply
