-- Put in front of every script of this folder when it is loaded: the clock, the keys, and the moves scripts share.
--
-- KEYS[1]  the pool's prefix `{pool:<name>}`. Every key starts with it, so a pool lives in one cluster slot.
-- ARGV[1]  how many events the stream keeps, about. The other arguments are each script's own.
--
-- Times are microseconds of the server's clock; so are fences, which therefore grow even across a loss of data.
--
--   :vms          set     every VM's id
--   :vm:<id>      hash    state host endpoint needs_reset fence since error drained resets failures retry_at
--                         holder token ttl ends (the last four only mean something while leased)
--   :free         zset    VMs that can be granted, by the time they became free
--   :queue        zset    waiters' tokens, by ticket (time of arrival less the priority's head start)
--   :waiters      hash    token -> "<ttl> <max age> <priority> <arrival> <holder>"
--   :grants       hash    token -> the VM leased under it
--   :inbox:<tok>  list    the grant handed to a waiter
--   :timers       zset    lease:<vm>, waiter:<token>, host:<host>, by the time each ends unless renewed
--   :hosts        hash    host -> the instance that speaks for it
--   :host:<h>     set     its VMs        :work:<h>  list  VMs it should look at
--   :counters     hash    totals         :events    stream
--
-- Kept at all times: while :free holds a VM, no live waiter is queued.

if redis.replicate_commands then redis.replicate_commands() end -- Redis 6: write after TIME

local P = KEYS[1]
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function note(event, vm, fence, holder)
  call('HINCRBY', P .. ':counters', event, 1)
  call('XADD', P .. ':events', 'MAXLEN', '~', ARGV[1], '*', 'event', event, 'vm', vm, 'fence', fence, 'holder', holder)
end

local function tell_host(host, vm)
  if host ~= '' then call('RPUSH', P .. ':work:' .. host, vm) end
end

local function lease_out(vm, token, holder, ttl, max_age)
  local key = P .. ':vm:' .. vm
  local was = call('HMGET', key, 'fence', 'endpoint')
  local fence = math.max(was[1] + 1, now)
  local ends = now + max_age
  local deadline = math.min(now + ttl, ends)
  call('HSET', key, 'state', 'leased', 'fence', fence, 'since', now, 'holder', holder, 'token', token, 'ttl', ttl,
    'ends', ends)
  call('ZADD', P .. ':timers', deadline, 'lease:' .. vm)
  call('HSET', P .. ':grants', token, vm)
  note('granted', vm, fence, holder)
  return { 1, vm, fence, deadline, now, was[2] }
end

-- The grant a token already has, its time beginning anew since its owner only hears of it now; nil without one.
local function held_under(token)
  local vm = call('HGET', P .. ':grants', token)
  if not vm then return nil end
  local is = call('HMGET', P .. ':vm:' .. vm, 'fence', 'endpoint', 'ttl', 'ends')
  local deadline = math.min(now + is[3], tonumber(is[4]))
  call('ZADD', P .. ':timers', deadline, 'lease:' .. vm)
  call('DEL', P .. ':inbox:' .. token)
  return { 1, vm, tonumber(is[1]), deadline, now, is[2] }
end

local function forget_waiter(token)
  call('ZREM', P .. ':timers', 'waiter:' .. token)
  call('HDEL', P .. ':waiters', token)
end

-- A VM that is clean and whose host is heard goes to the first live waiter, else among the free ones.
local function hand_on(vm)
  while true do
    local token = call('ZPOPMIN', P .. ':queue')[1]
    if not token then
      call('ZADD', P .. ':free', now, vm)
      return
    end
    local alive_until = call('ZSCORE', P .. ':timers', 'waiter:' .. token)
    local request = call('HGET', P .. ':waiters', token)
    forget_waiter(token)
    if request and alive_until and tonumber(alive_until) > now then
      local ttl, max_age, holder = string.match(request, '^(%d+) (%d+) %S+ %d+ (.*)$')
      local grant = lease_out(vm, token, holder, tonumber(ttl), tonumber(max_age))
      local inbox = P .. ':inbox:' .. token
      call('RPUSH', inbox, string.format('%.0f %.0f %s %s', grant[3], grant[4], vm, grant[6]))
      call('PEXPIRE', inbox, math.ceil(ttl / 1000))
      return
    end
    call('HINCRBY', P .. ':counters', 'waiters_lost', 1)
  end
end

local function heard(host)
  local until_then = host ~= '' and call('ZSCORE', P .. ':timers', 'host:' .. host)
  return host == '' or (until_then and tonumber(until_then) > now)
end

-- A clean VM whose host is silent stays out until the host is heard again.
local function offer(vm, host)
  if heard(host) then hand_on(vm) end
end

-- Ends a VM's lease, whatever the reason, and sends the VM where it goes next.
local function take_back(vm, event)
  local key = P .. ':vm:' .. vm
  local is = call('HMGET', key, 'fence', 'token', 'holder', 'needs_reset', 'host', 'drained')
  local after = 'free'
  if is[4] == '1' then after = 'resetting' elseif is[6] then after = 'stopped' end
  call('HDEL', P .. ':grants', is[2])
  call('ZREM', P .. ':timers', 'lease:' .. vm)
  if event ~= 'released' then call('DEL', P .. ':inbox:' .. is[2]) end
  call('HSET', key, 'state', after, 'fence', is[1] + 1, 'since', now)
  note(event, vm, is[1], is[3])
  if after == 'free' then offer(vm, is[5]) else tell_host(is[5], vm) end
end

-- Ends everything whose time has come: leases, waiters that stopped asking, hosts that fell silent.
local function reap()
  local due = call('ZRANGEBYSCORE', P .. ':timers', '-inf', now)
  for _, timer in ipairs(due) do
    call('ZREM', P .. ':timers', timer)
    local kind, id = string.match(timer, '^(%a+):(.*)$')
    if kind == 'lease' then
      take_back(id, 'expired')
    elseif kind == 'waiter' then
      call('ZREM', P .. ':queue', id)
      if call('HDEL', P .. ':waiters', id) == 1 then call('HINCRBY', P .. ':counters', 'waiters_lost', 1) end
    else
      for _, vm in ipairs(call('SMEMBERS', P .. ':host:' .. id)) do call('ZREM', P .. ':free', vm) end
      note('host_silent', '', 0, id)
    end
  end
  return #due
end
