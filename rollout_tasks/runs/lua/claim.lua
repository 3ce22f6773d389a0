-- Claims a rollout for one execution and counts the attempt. Safe to repeat after a lost reply.
-- KEYS[1] the run's key, as in {run:ID}
-- ARGV[1] rollout id   [2] item id   [3] token of this execution   [4] holder description (JSON)
-- ARGV[5] attempt this execution has just ended, 0 at its beginning
-- ARGV[6] seconds without a beat after which a holder counts as dead   [7] token of a holder known to be dead, or ''
-- ARGV[8] the latest version of stored runs that the caller understands
-- A rollout of a run being cancelled is claimed too, without an attempt, so that its cancellation is committed.
-- Returns {status, attempt, item JSON or holder JSON, seconds since the holder's last beat, the run's creation time (both text)}
local run, rollout, token = KEYS[1], ARGV[1], ARGV[3]
local described = redis.call('HMGET', run, 'state', 'max_attempts', 'created', 'min_version')
local state, max_attempts, created = described[1], tonumber(described[2]), described[3]

local function answer(status, attempt, document, silent)
  return {status, attempt, document or '', tostring(silent or 0), created or '0'}
end

if not state then return answer('unknown', 0) end
if tonumber(described[4] or '1') > tonumber(ARGV[8]) then return answer('newer', 0) end
if redis.call('HEXISTS', run .. ':results', rollout) == 1 then return answer('committed', 0) end
if redis.call('SISMEMBER', run .. ':pending', rollout) == 0 then return answer('unknown', 0) end
if state == 'half_submitted' then return answer('half_submitted', 0) end

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local attempts = tonumber(redis.call('HGET', run .. ':attempts', rollout) or '0')
local holder = redis.call('HGET', run .. ':holders', rollout)
local mine, was_exhausted = false, false
if holder then
  local held = cjson.decode(holder)
  local held_by = held['token']
  if held_by == token then
    mine, was_exhausted = true, held['exhausted']
  elseif tonumber(ARGV[5]) > 0 then
    return answer('superseded', attempts, holder)
  else
    local beat = tonumber(redis.call('ZSCORE', run .. ':alive', rollout) or '0')
    if beat > now then -- the server's clock was set back: the holder counts as silent some day all the same
      redis.call('ZADD', run .. ':alive', now, rollout)
      beat = now
    end
    local silent = now - beat
    if silent < tonumber(ARGV[6]) and held_by ~= ARGV[7] then return answer('busy', attempts, holder, silent) end
  end
elseif tonumber(ARGV[5]) > 0 then
  return answer('superseded', attempts)
end
if state == 'draining' and not mine then return answer('draining', attempts) end

local status = 'claimed'
if state == 'cancelling' or state == 'cancelled' then
  status = 'cancelled'
elseif was_exhausted or not (mine and attempts > tonumber(ARGV[5])) then
  if attempts >= max_attempts then
    status = 'exhausted'
  else
    attempts = redis.call('HINCRBY', run .. ':attempts', rollout, 1)
  end
end
local described_holder = ARGV[4]
if status == 'exhausted' then -- so that the same answer is given again
  local exhausted = cjson.decode(described_holder)
  exhausted['exhausted'] = true
  described_holder = cjson.encode(exhausted)
end
redis.call('HSET', run .. ':holders', rollout, described_holder)
redis.call('ZADD', run .. ':alive', now, rollout)
return answer(status, attempts, redis.call('HGET', run .. ':items', ARGV[2]))
