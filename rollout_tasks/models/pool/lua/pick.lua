-- Picks the replica for one request of a session, and counts the request there until it is released, or its deadline.
--
-- In rotation are replicas that are ready, not silent, and not among those that just failed the caller. The session's own
-- replica is picked unless it has more than `margin` requests more in flight than the one that has the fewest. Else that
-- one is; of several, the one that was picked least recently.
--
-- Asked again with the same token, it answers the same while the request is counted there. It picks anew when the
-- replica has failed the caller, or no longer has the request: its process ended, or the deadline passed.
--
-- KEYS[1]  the pool's prefix
-- ARGV[1]  token of the pick, never used for another one, ARGV[2]  session
-- ARGV[3]  how long the request is counted if nobody releases it, ARGV[4]  how long the session is remembered (microseconds)
-- ARGV[5]  how long the pick is known after its end (microseconds), ARGV[6]  margin
-- ARGV[7], ...  ids of replicas that just failed the caller
--
-- Returns {'picked', row}; {'released'} when the token's pick was released before; or {'none', starting, draining, dead,
-- failed, silent, microseconds since the last heartbeat of the silent ones}: how many replicas there are of each kind.

local token, session = ARGV[1], ARGV[2]
local failed = {}
for i = 7, #ARGV do failed[ARGV[i]] = true end

local pick = P .. ':pick:' .. token
local before = call('HMGET', pick, 'replica', 'ended')
if before[2] then return { 'released' } end
local earlier = before[1]
if earlier and state_of(earlier) then
  local key = P .. ':in_flight:' .. earlier
  local deadline = call('ZSCORE', key, token)
  if deadline and failed[earlier] then
    call('ZREM', key, token)
  elseif deadline and tonumber(deadline) > now then
    return { 'picked', row(earlier) }
  end
end

local session_replica = call('GET', P .. ':session:' .. session)
local session_replica_load, least, least_load
local others = { starting = 0, draining = 0, dead = 0, failed = 0 }
local last_pick = 0
local ids = call('ZRANGE', P .. ':replicas', 0, -1, 'WITHSCORES') -- the least recently picked first
for i = 1, #ids, 2 do
  local id = ids[i]
  last_pick = tonumber(ids[i + 1])
  local state = state_of(id)
  if state == 'ready' and failed[id] then state = 'failed' end
  if state == 'ready' then
    local load = in_flight(id)
    if not least or load < least_load then least, least_load = id, load end
    if id == session_replica then session_replica_load = load end
  elseif state then
    others[state] = others[state] + 1
  end
end

if not least then
  local silent = P .. ':silent'
  local count = call('ZCOUNT', silent, text(now - SILENT_KEPT), '+inf')
  local last = call('ZREVRANGE', silent, 0, 0, 'WITHSCORES')[2] or now
  return { 'none', others.starting, others.draining, others.dead, others.failed, count, now - last }
end

local chosen = least
if session_replica_load and session_replica_load - least_load <= tonumber(ARGV[6]) then chosen = session_replica end
local key = P .. ':in_flight:' .. chosen
call('ZREMRANGEBYSCORE', key, '-inf', text(now))
call('ZADD', key, now + ARGV[3], token)
call('ZADD', P .. ':replicas', last_pick + 1, chosen)
call('SET', P .. ':session:' .. session, chosen, 'PX', math.ceil(ARGV[4] / 1000))
local answer = row(chosen)
call('HSET', pick, 'replica', chosen, 'instance', answer[2])
expire(pick, ARGV[3] + ARGV[5])
return { 'picked', answer }
