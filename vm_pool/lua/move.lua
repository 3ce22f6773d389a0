-- Moves a VM to another state outside the cycle of leases: a host's retry or stop, an operator's reset or quarantine.
--
-- ARGV[2]  vm, ARGV[3]  the states it may be in, separated and enclosed by spaces
-- ARGV[4]  the new state: initializing, resetting, error or stopped
-- ARGV[5]  the fence it must have, or ''
-- ARGV[6]  why, kept as the VM's error, or ''
--
-- Returns {1, fence} or {0, the state it is in, '' when the pool has no such VM}.

local vm = ARGV[2]
local key = P .. ':vm:' .. vm
local is = call('HMGET', key, 'state', 'fence', 'host')
if not is[1] then return { 0, '' } end
if not string.find(ARGV[3], ' ' .. is[1] .. ' ', 1, true) or (ARGV[5] ~= '' and ARGV[5] ~= is[2]) then
  return { 0, is[1] }
end
if is[1] == 'leased' then revoke(vm, lease_of(vm)) end
call('ZREM', P .. ':free', vm)
local fence = is[2] + 2
call('HSET', key, 'state', ARGV[4], 'fence', fence, 'since', now)
call('HDEL', key, 'retry_at')
if ARGV[6] ~= '' then call('HSET', key, 'error', ARGV[6]) end
local event = { error = 'quarantined', stopped = 'stopped', initializing = 'boot_begun', resetting = 'reset_begun' }
note(event[ARGV[4]], vm, text(fence), is[3])
tell_host(is[3], vm)
return { 1, fence }
