-- KEYS: the stream; the note of the last event that was taken, with its position and id.
-- ARGV: how many entries to keep, about (0: all); then of each event position, id, type, account, json.
-- Answers how many were added, 'other' where what is there is not what these events continue, or the error of an XADD.
local noted = redis.call('HMGET', KEYS[2], 'position', 'id')
local last = tonumber(noted[1] or '0')

-- The newest of these events that should be there already is there, or another one is. Positions are given once, so the
-- events before it are the same as well. An entry may be trimmed or deleted: the note of the last one stays.
local first = 2
while first <= #ARGV and tonumber(ARGV[first]) <= last do
	first = first + 5
end
if first > 2 then
	local position, id = ARGV[first - 5], ARGV[first - 4]
	local found = noted[2]
	if tonumber(position) < last then
		found = nil
		local entry = redis.call('XRANGE', KEYS[1], position .. '-0', position .. '-0')[1]
		if entry then
			for i = 1, #entry[2], 2 do
				if entry[2][i] == 'id' then
					found = entry[2][i + 1]
				end
			end
		end
	end
	if found ~= id then
		return 'other'
	end
end

-- One by one, and no further than the first that fails: a later one in its place would keep it out for ever.
for at = first, #ARGV, 5 do
	local add = { 'XADD', KEYS[1] }
	if ARGV[1] ~= '0' then
		add = { 'XADD', KEYS[1], 'MAXLEN', '~', ARGV[1] }
	end
	for _, word in ipairs({ ARGV[at] .. '-0', 'id', ARGV[at + 1], 'type', ARGV[at + 2], 'position', ARGV[at], 'account', ARGV[at + 3], 'json', ARGV[at + 4] }) do
		add[#add + 1] = word
	end
	local added = redis.pcall(unpack(add))
	if type(added) == 'table' and added.err then
		if string.find(added.err, 'equal or smaller', 1, true) then
			return 'other' -- the stream is ahead of its note: somebody else writes to it
		end
		return added
	end
	redis.call('HSET', KEYS[2], 'position', ARGV[at], 'id', ARGV[at + 1])
end
return (#ARGV + 1 - first) / 5
