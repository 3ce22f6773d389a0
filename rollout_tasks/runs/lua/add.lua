-- Stores a part of a run that is being submitted, and records that its submitter lives.
-- KEYS[1] the run's key   ARGV[1] token of the submission
-- ARGV[2] items | pending | results | spent | beat
-- ARGV[3...] items: id, JSON, ...   pending: rollout id, ...   beat: nothing
--            results: rollout id, verdict (JSON), status, failure class or '', score or '', cost or '', ...
--            spent: rollout id, dollars for what a resumed run tries again, ...: they count at once, see commit.lua
-- Returns the run's state, 'superseded' when the run belongs to another submission, 'unknown' when the run is gone.
-- Adds only to a run that is 'submitting'.
-- Safe to repeat after a lost reply.
-- A submitter that was wrongly taken to be dead goes on: what it has stored is still there.
local run = KEYS[1]
local described = redis.call('HMGET', run, 'state', 'submission')
if not described[1] then return 'unknown' end
if described[2] ~= ARGV[1] then return 'superseded' end
if described[1] == 'half_submitted' then
  redis.call('HSET', run, 'state', 'submitting')
  described[1] = 'submitting'
end
if described[1] ~= 'submitting' then return described[1] end
local time = redis.call('TIME')
redis.call('HSET', run, 'submitter_beat', tostring(tonumber(time[1]) + tonumber(time[2]) / 1e6))
if ARGV[2] == 'items' then
  redis.call('HSET', run .. ':items', unpack(ARGV, 3))
elseif ARGV[2] == 'pending' then
  for at = 3, #ARGV do
    if redis.call('HEXISTS', run .. ':results', ARGV[at]) == 0 then redis.call('SADD', run .. ':pending', ARGV[at]) end
  end
elseif ARGV[2] == 'results' then
  for at = 3, #ARGV, 6 do
    if redis.call('HSETNX', run .. ':results', ARGV[at], ARGV[at + 1]) == 1 then
      redis.call('SREM', run .. ':pending', ARGV[at])
      redis.call('HINCRBY', run .. ':counts', ARGV[at + 2], 1)
      if ARGV[at + 3] ~= '' then redis.call('HINCRBY', run .. ':counts', 'class:' .. ARGV[at + 3], 1) end
      if ARGV[at + 4] ~= '' then redis.call('HINCRBYFLOAT', run .. ':counts', 'score', ARGV[at + 4]) end
      if ARGV[at + 5] ~= '' then redis.call('HINCRBYFLOAT', run .. ':counts', 'cost', ARGV[at + 5]) end
    end
  end
elseif ARGV[2] == 'spent' then
  for at = 3, #ARGV, 2 do
    if redis.call('HEXISTS', run .. ':results', ARGV[at]) == 0
      and redis.call('HSETNX', run .. ':spent', ARGV[at], ARGV[at + 1]) == 1 then
      redis.call('HINCRBYFLOAT', run .. ':counts', 'cost', ARGV[at + 1])
    end
  end
end
return described[1]
