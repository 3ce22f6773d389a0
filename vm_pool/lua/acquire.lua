-- Grants a free VM, or puts the caller in the queue; asked again, refreshes its place there or finds its grant.
--
-- ARGV[2]  token: who asks; the same token never holds two VMs
-- ARGV[3]  ttl, ARGV[4]  max age, ARGV[5]  head start of its priority, ARGV[6]  how long it counts as alive (microseconds)
-- ARGV[7]  ticket from an earlier reply, else 0: a waiter that Redis forgot comes back to its place
-- ARGV[8]  priority, ARGV[9]  holder (for people to read)
-- ARGV[10] '1' when the token may have been granted a VM before, '0' the first time it is seen
-- ARGV[11] process: where it runs, for hosts of the same machine
--
-- Returns {1, vm, fence, deadline, now, endpoint} or {0, ticket, now, number of VMs in the pool}.

local token = ARGV[2]
local queued = false
if ARGV[10] == '1' then
  reap()
  queued = call('ZSCORE', P .. ':queue', token)
  local held = not queued and leased_under(token)
  if held then return grant_again(held, token) end
end

local function grant_free()
  while true do
    local vm = call('ZPOPMIN', P .. ':free')[1]
    if not vm then return nil end
    local granted = lease_out(vm, token, ARGV[9], ARGV[11], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[3]))
    if granted then return granted end -- else its host lends none now, and offers it again when it does
  end
end

local grant = grant_free()
if not grant then
  reap() -- which also takes the VMs of silent hosts off the free ones
  grant = grant_free()
end
if grant then
  if queued then -- or the next VM would go to it, too
    call('ZREM', P .. ':queue', token)
    forget_waiter(token)
  end
  return grant
end

local ticket = tonumber(ARGV[7])
if ticket == 0 then
  ticket = math.max(now, (call('HGET', P .. ':counters', 'last_ticket') or 0) + 1)
  call('HSET', P .. ':counters', 'last_ticket', ticket)
end
if not queued then
  call('ZADD', P .. ':queue', ticket - ARGV[5], token)
  local request = string.format('%s %s %s %.0f %s\n%s', ARGV[3], ARGV[4], ARGV[8], ticket, ARGV[9], ARGV[11])
  call('HSET', P .. ':waiters', token, request)
end
call('ZADD', P .. ':timers', now + ARGV[6], 'waiter:' .. token)
return { 0, ticket, now, call('SCARD', P .. ':vms') }
