-- Who of one machine has a lease or waits at the front of the queue; changes nothing.
--
-- ARGV[2]  the machine, ARGV[3]  how many waiters to look at, at most
--
-- Returns {vm, fence, process, ...} of leases and {token, process, ...} of waiters.

local leases, waiters = {}, {}
local function is_there(process)
  return process and string.sub(process, 1, #ARGV[2] + 1) == ARGV[2] .. ':'
end
for _, vm in ipairs(call('SMEMBERS', P .. ':vms')) do
  local is = call('HMGET', P .. ':vm:' .. vm, 'state', 'fence', 'process')
  if is[1] == 'leased' and is_there(is[3]) then
    leases[#leases + 1] = vm
    leases[#leases + 1] = is[2]
    leases[#leases + 1] = is[3]
  end
end
for _, token in ipairs(call('ZRANGE', P .. ':queue', 0, ARGV[3] - 1)) do
  local process = string.match(call('HGET', P .. ':waiters', token) or '', '\n(.*)$')
  if is_there(process) then
    waiters[#waiters + 1] = token
    waiters[#waiters + 1] = process
  end
end
return { leases, waiters }
