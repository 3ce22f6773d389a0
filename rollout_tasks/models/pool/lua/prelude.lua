-- Put in front of every script of this folder when it is loaded: the clock, the keys, and what the scripts share.
--
-- KEYS[1]  the pool's prefix `{models:<name>}`. Every key starts with it, so a pool lives in one cluster slot.
--
-- Times are microseconds of the server's clock; so are fences, which therefore grow even across a loss of data.
--
--   :replicas        zset    every replica's id, by the number of the pick that chose it last; 0 until then
--   :replica:<id>    hash    instance replaced fence url model version checkpoint last host gpu pid state started beat until
--   :in_flight:<id>  zset    tokens of the picks that are on it and were not released, by their deadlines
--   :pick:<token>    hash    replica, instance, and once released `ended`: the replica's weight version then, or ''; expires
--   :session:<id>    string  the replica that the session sticks to; expires
--   :reload          string  the last change of weights that was asked for, as reloads.py writes it
--   :reloaded        hash    how far each replica is with it; expires
--   :reloading       string  whose turn it is, a lock; expires
--   :checksums       hash    of the weights that servers had after each change; expires
--   :silent          zset    ids of replicas that were removed because they fell silent, by their last heartbeats; expires
--
-- `instance` names one process that serves as the replica, `replaced` the one before it. `fence` grows with each
-- registration and each change.
--
-- How many requests a replica has in flight is counted from the deadlines each time, so a caller that died cannot leave
-- a wrong number behind.

if redis.replicate_commands then redis.replicate_commands() end -- Redis 6: write after TIME

local SILENT_KEPT = 3600000000 -- how long a replica that fell silent is remembered, for the sentence that users read

local P = KEYS[1]
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Every digit of a whole number; `..` alone would round it.
local function text(number)
  return string.format('%.0f', number)
end

local function expire(key, microseconds)
  call('PEXPIRE', key, math.ceil(microseconds / 1000))
end

local function forget(id)
  call('ZREM', P .. ':replicas', id)
  call('DEL', P .. ':replica:' .. id, P .. ':in_flight:' .. id)
end

-- A replica's state; nil when there is none of this id. Removes one that has been silent for too long.
local function state_of(id)
  local is = call('HMGET', P .. ':replica:' .. id, 'state', 'until', 'beat')
  if not is[1] then return nil end
  if tonumber(is[2]) > now then return is[1] end
  forget(id)
  local silent = P .. ':silent'
  call('ZADD', silent, is[3], id)
  call('ZREMRANGEBYSCORE', silent, '-inf', text(now - SILENT_KEPT))
  expire(silent, SILENT_KEPT)
  return nil
end

-- Notes that a replica is alive.
local function hear(id, ttl)
  call('HSET', P .. ':replica:' .. id, 'beat', now, 'until', now + ttl)
end

local function in_flight(id)
  return call('ZCOUNT', P .. ':in_flight:' .. id, '(' .. text(now), '+inf')
end

-- Everything about a replica, as all scripts return it.
local function row(id)
  local is = call('HMGET', P .. ':replica:' .. id, 'instance', 'fence', 'url', 'model', 'version', 'host', 'gpu', 'pid',
    'state', 'started', 'beat', 'checkpoint', 'last')
  is[#is + 1] = in_flight(id)
  table.insert(is, 1, id)
  return is
end
