-- Moves the deadlines of leases; refuses those that ended, were taken over, or reached their maximum age.
--
-- ARGV[2], ARGV[3], ...  vm, fence, vm, fence, ...
--
-- Returns {now, deadline or 0 for each}.

local reply = { now }
for i = 2, #ARGV, 2 do
  local vm = ARGV[i]
  local is = call('HMGET', P .. ':vm:' .. vm, 'state', 'fence', 'ttl', 'ends')
  local deadline = 0
  if is[1] == 'leased' and is[2] == ARGV[i + 1] then
    local until_now = call('ZSCORE', P .. ':timers', 'lease:' .. vm)
    if until_now and tonumber(until_now) > now then
      deadline = math.min(now + is[3], tonumber(is[4]))
      call('ZADD', P .. ':timers', deadline, 'lease:' .. vm)
    end
  end
  reply[#reply + 1] = deadline
end
return reply
