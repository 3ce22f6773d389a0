-- Put in front of every script of this folder when it is loaded: the clock, the keys, and the moves scripts share.
--
-- KEYS[1]  the pool's prefix `{pool:<name>}`. Every key starts with it, so a pool lives in one cluster slot.
-- ARGV[1]  how many events the stream keeps, about. The other arguments are each script's own.
--
-- Times are microseconds of the server's clock; so are fences, which therefore grow even across a loss of data.
--
--   :vms          set     every VM's id
--   :vm:<id>      hash    state host endpoint needs_reset fence since grants error drained resets failures retry_at
--                         timer, and while leased: holder token process ttl deadline ends
--   :free         zset    VMs that can be granted, by the time they became free
--   :queue        zset    waiters' tokens, by ticket (time of arrival less the priority's head start)
--   :waiters      hash    token -> "<ttl> <max age> <priority> <arrival> <holder>\n<process>"
--   :inbox:<tok>  list    the grant handed to a waiter, until it takes it
--   :timers       zset    waiter:<token>, host:<host> by the time each ends unless renewed; lease:<vm> no later than
--                         that: it is looked at again then, so that short leases cost no timer (its time is in `timer`)
--   :hosts        hash    host -> the instance that speaks for it: "<random> <process>"
--   :servers      hash    host -> the server process (`run_id` of INFO) whose grants it stands behind
--   :images       hash    host -> the name of the image that its VMs are made from     :facts  hash  what is known of an image
--   :host:<h>     set     its VMs        :work:<h>  list  VMs it should look at
--   :counters     hash    totals, but for grants of VMs still here (their `grants`) and releases (what remains)
--   :events       stream  e = "<event> <vm or -> <fence> <holder or host>"
--
-- A process is "<machine>:<process id>:<when it began>", empty where unknown: hosts of that machine see when it has ended.
--
-- Kept at all times: while :free holds a VM, no live waiter is queued.
--
-- A server that comes back without its last writes, or a replica that takes over, may call a VM free that somebody holds.
-- So a host's VMs are granted only by the server process that the host has compared its own knowledge with; see beat.lua.

if redis.replicate_commands then redis.replicate_commands() end -- Redis 6: write after TIME

local TAKEN_WITHIN = 3000000 -- how long a grant that was handed over may lie in the inbox of a waiter, who may be gone

local P = KEYS[1]
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Every digit of a whole number; `..` alone would round it.
local function text(number)
  return string.format('%.0f', number)
end

-- The fence as text.
local function note(event, vm, fence, holder)
  call('XADD', P .. ':events', 'MAXLEN', '~', ARGV[1], '*', 'e', event .. ' ' .. vm .. ' ' .. fence .. ' ' .. holder)
end

local function count(what)
  call('HINCRBY', P .. ':counters', what, 1)
end

local function tell_host(host, vm)
  if host ~= '' then call('RPUSH', P .. ':work:' .. host, vm) end
end

local function heard(host)
  local until_then = host ~= '' and call('ZSCORE', P .. ':timers', 'host:' .. host)
  return host == '' or (until_then and tonumber(until_then) > now)
end

local info

-- The fields of INFO that say which process of the server this is. Costs more than all else in a grant: read once.
local function about_server()
  info = info or call('INFO', 'server')
  return info
end

-- Whether a host's VMs may be granted: it gives signs of life, and has looked at them since this server process began.
-- A host of a version that never says so is believed.
local function lends(host)
  if host == '' then return true end
  if not heard(host) then return false end
  local server = call('HGET', P .. ':servers', host)
  return not server or string.find(about_server(), 'run_id:' .. server, 1, true) ~= nil
end

local function set_timer(vm, at)
  call('ZADD', P .. ':timers', at, 'lease:' .. vm)
  call('HSET', P .. ':vm:' .. vm, 'timer', at)
end

-- Leases a VM out and returns the grant; nil when its host does not lend now. The lease is looked at after `within`.
local function lease_out(vm, token, holder, process, ttl, max_age, within)
  local key = P .. ':vm:' .. vm
  local was = call('HMGET', key, 'fence', 'endpoint', 'grants', 'timer', 'host')
  if not lends(was[5]) then return nil end
  local fence = text(math.max(was[1] + 1, now))
  local ends = now + max_age
  local deadline = math.min(now + ttl, ends)
  call('HSET', key, 'state', 'leased', 'fence', fence, 'since', now, 'holder', holder, 'token', token, 'process', process,
    'ttl', ttl, 'deadline', deadline, 'ends', ends, 'grants', (was[3] or 0) + 1)
  local look_at = math.min(deadline, now + within)
  if not was[4] or tonumber(was[4]) > look_at then set_timer(vm, look_at) end
  note('granted', vm, fence, holder)
  return { 1, vm, fence, deadline, now, was[2] }
end

-- The VM leased under a token, or nil. Looks at every VM: only for a waiter that is not in the queue where it should be.
local function leased_under(token)
  for _, vm in ipairs(call('SMEMBERS', P .. ':vms')) do
    local is = call('HMGET', P .. ':vm:' .. vm, 'token', 'state')
    if is[1] == token and is[2] == 'leased' then return vm end
  end
  return nil
end

-- A grant whose owner only hears of it now: its time begins anew.
local function grant_again(vm, token)
  local is = call('HMGET', P .. ':vm:' .. vm, 'fence', 'endpoint', 'ttl', 'ends')
  local deadline = math.min(now + is[3], tonumber(is[4]))
  call('HSET', P .. ':vm:' .. vm, 'deadline', deadline)
  call('DEL', P .. ':inbox:' .. token)
  return { 1, vm, is[1], deadline, now, is[2] }
end

local function forget_waiter(token)
  call('ZREM', P .. ':timers', 'waiter:' .. token)
  call('HDEL', P .. ':waiters', token)
end

-- A VM that is clean and whose host lends goes to the first live waiter, else among the free ones.
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
      local ttl, max_age, holder, process = string.match(request, '^(%d+) (%d+) %S+ %d+ ([^\n]*)\n?(.*)$')
      local grant = lease_out(vm, token, holder, process, tonumber(ttl), tonumber(max_age), TAKEN_WITHIN)
      local inbox = P .. ':inbox:' .. token
      call('DEL', inbox) -- a message that a restarted server took for untaken
      call('RPUSH', inbox, string.format('%s %.0f %s %s', grant[3], grant[4], vm, grant[6]))
      call('PEXPIRE', inbox, math.ceil(ttl / 1000))
      return
    end
    count('waiters_lost')
  end
end

-- A clean VM whose host does not lend now stays out until it does again.
local function offer(vm, host)
  if lends(host) then hand_on(vm) end
end

local STATE, FENCE, TOKEN, HOLDER, NEEDS_RESET, HOST, DRAINED, DEADLINE = 1, 2, 3, 4, 5, 6, 7, 8

local function lease_of(vm)
  return call('HMGET', P .. ':vm:' .. vm, 'state', 'fence', 'token', 'holder', 'needs_reset', 'host', 'drained',
    'deadline')
end

-- Ends a lease, whatever the reason, and sends the VM where it goes next. Only the holder itself leaves no inbox.
local function take_back(vm, lease, event)
  local after = 'free'
  if lease[NEEDS_RESET] == '1' then after = 'resetting' elseif lease[DRAINED] then after = 'stopped' end
  if event ~= 'released' then
    call('DEL', P .. ':inbox:' .. lease[TOKEN])
    count(event)
  end
  call('HSET', P .. ':vm:' .. vm, 'state', after, 'fence', lease[FENCE] + 1, 'since', now)
  note(event, vm, lease[FENCE], lease[HOLDER])
  if after == 'free' then offer(vm, lease[HOST]) else tell_host(lease[HOST], vm) end
end

-- Ends the lease of a VM that must not go to a waiter now, even if it needs no reset.
local function revoke(vm, lease)
  lease[NEEDS_RESET] = '1'
  take_back(vm, lease, 'revoked')
end

-- Until when a lease that was handed over, and that nobody has renewed, may lie in the inbox; nil once it was taken.
local function taken_by(vm, token)
  if call('EXISTS', P .. ':inbox:' .. token) == 0 then return nil end
  local is = call('HMGET', P .. ':vm:' .. vm, 'since', 'ttl', 'deadline', 'ends')
  local renewed = tonumber(is[3]) ~= math.min(is[1] + is[2], tonumber(is[4]))
  return not renewed and is[1] + TAKEN_WITHIN or nil
end

-- The timer of a VM's lease went off: the lease is over, or was renewed, or is long replaced by another.
local function look_at_lease(vm)
  local lease = lease_of(vm)
  call('HDEL', P .. ':vm:' .. vm, 'timer')
  if lease[STATE] ~= 'leased' then return 0 end
  local deadline = tonumber(lease[DEADLINE])
  deadline = math.min(deadline, taken_by(vm, lease[TOKEN]) or deadline)
  if deadline > now then
    set_timer(vm, deadline)
    return 0
  end
  take_back(vm, lease, 'expired')
  return 1
end

-- Ends everything whose time has come: leases, waiters that stopped asking, hosts that fell silent.
local function reap()
  local ended = 0
  for _, timer in ipairs(call('ZRANGEBYSCORE', P .. ':timers', '-inf', now)) do
    call('ZREM', P .. ':timers', timer)
    local kind, id = string.match(timer, '^(%a+):(.*)$')
    if kind == 'lease' then
      ended = ended + look_at_lease(id)
    elseif kind == 'waiter' then
      call('ZREM', P .. ':queue', id)
      if call('HDEL', P .. ':waiters', id) == 1 then
        count('waiters_lost')
        ended = ended + 1
      end
    else
      for _, vm in ipairs(call('SMEMBERS', P .. ':host:' .. id)) do call('ZREM', P .. ':free', vm) end
      count('host_silent')
      note('host_silent', '-', '0', id)
      ended = ended + 1
    end
  end
  return ended
end
