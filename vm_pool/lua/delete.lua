-- Removes the pool and every key it has.
--
-- Returns how many keys that were.

local keys = { ':vms', ':free', ':queue', ':waiters', ':timers', ':hosts', ':servers', ':images', ':facts', ':counters',
  ':events' }
local function all(group, prefix, members)
  for _, member in ipairs(call(members, P .. group)) do keys[#keys + 1] = prefix .. member end
end
all(':vms', ':vm:', 'SMEMBERS')
all(':hosts', ':host:', 'HKEYS')
all(':hosts', ':work:', 'HKEYS')
for _, vm in ipairs(call('SMEMBERS', P .. ':vms')) do
  local is = call('HMGET', P .. ':vm:' .. vm, 'host', 'token')
  keys[#keys + 1] = ':host:' .. is[1]
  keys[#keys + 1] = ':work:' .. is[1]
  keys[#keys + 1] = ':inbox:' .. is[2]
end
local deleted = 0
for _, key in ipairs(keys) do deleted = deleted + call('DEL', P .. key) end
return deleted
