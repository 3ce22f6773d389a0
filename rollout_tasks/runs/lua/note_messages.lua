-- Notes which rollouts have messages, a part of a queue at a time, so that no message has to leave the server.
-- KEYS[1] a queue (list), or the messages that are delivered and not acknowledged (hash)   KEYS[2] where to note (set)
-- ARGV[1] where to begin: a list's index, a hash's cursor   [2] how many messages   [3] seconds to keep the notes
-- Returns {where to go on, '0' at the end, {body of each rollout message whose headers do not name its rollout, ...}}.
local documents, after = {}, '0'
-- Another program's entry may be anything.
local function parsed(text)
  local ok, value = pcall(cjson.decode, text)
  if ok and type(value) == 'table' then return value end
  return {}
end
if redis.call('TYPE', KEYS[1])['ok'] == 'hash' then
  local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
  after = found[1]
  for at = 2, #found[2], 2 do documents[#documents + 1] = parsed(found[2][at])[1] or {} end
else
  local first = tonumber(ARGV[1])
  local found = redis.call('LRANGE', KEYS[1], first, first + tonumber(ARGV[2]) - 1)
  if #found == tonumber(ARGV[2]) then after = string.format('%.0f', first + #found) end
  for at = 1, #found do documents[at] = parsed(found[at]) end
end
local unknown = {}
for _, message in ipairs(documents) do
  local headers = type(message) == 'table' and message['headers'] or {}
  if type(headers) ~= 'table' then headers = {} end
  if headers['task'] == 'rollout' then
    if type(headers['run']) == 'string' and type(headers['rollout']) == 'string' then
      redis.call('SADD', KEYS[2], headers['run'] .. ' ' .. headers['rollout'])
    else
      unknown[#unknown + 1] = tostring(message['body'])
    end
  end
end
redis.call('EXPIRE', KEYS[2], ARGV[3])
return {after, unknown}
