-- A host (or, for a VM without one, anybody) puts a VM into the pool, or takes over the entry a predecessor left.
--
-- ARGV[2]  vm, ARGV[3]  host or '', ARGV[4]  endpoint as JSON, ARGV[5]  needs_reset '1' or '0'
-- ARGV[6]  state: initializing, resetting, or free
-- ARGV[7]  the highest fence the host remembers, or 0: fences grow also when Redis lost its data
--
-- Returns the VM's fence, or the name of the live host that has a VM of this id.

local vm, host = ARGV[2], ARGV[3]
local key = P .. ':vm:' .. vm
local was = call('HMGET', key, 'state', 'fence', 'host', 'drained')
if was[1] then
  if was[3] ~= host then
    if was[3] ~= '' and heard(was[3]) then return was[3] end
    call('SREM', P .. ':host:' .. was[3], vm)
  end
  if was[1] == 'leased' then revoke(vm, lease_of(vm)) end
  call('ZREM', P .. ':free', vm)
end
local fence = math.max((was[2] or 0) + 2, ARGV[7] + 1, now)
call('HSET', key, 'state', ARGV[6], 'host', host, 'endpoint', ARGV[4], 'needs_reset', ARGV[5], 'fence', fence,
  'since', now, 'holder', '', 'token', '')
call('SADD', P .. ':vms', vm)
if host ~= '' then call('SADD', P .. ':host:' .. host, vm) end
note('registered', vm, text(fence), host)
if ARGV[6] == 'free' then
  if not was[4] then offer(vm, host) else call('HSET', key, 'state', 'stopped') end
else
  tell_host(host, vm)
end
return fence
