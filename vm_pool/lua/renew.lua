-- Moves the deadlines of leases; refuses those that ended, were taken over, or reached their maximum age.
--
-- ARGV[2], ARGV[3], ...  vm, fence, vm, fence, ...
--
-- Returns {now, deadline or 0 for each}.

local reply = { now }
for i = 2, #ARGV, 2 do
  local vm = ARGV[i]
  local key = P .. ':vm:' .. vm
  local is = call('HMGET', key, 'state', 'fence', 'deadline', 'ttl', 'ends')
  local deadline = 0
  if is[1] == 'leased' and is[2] == ARGV[i + 1] and tonumber(is[3]) > now then
    deadline = math.min(now + is[4], tonumber(is[5]))
    call('HSET', key, 'deadline', deadline)
  end
  reply[#reply + 1] = deadline
end
return reply
