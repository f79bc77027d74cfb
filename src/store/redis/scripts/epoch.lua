-- Begins a new epoch of a slot's nonces when they may have been lost, and takes out those that are over. Answers from which
-- timestamp on signatures are taken there.
--
-- KEYS: epoch, nonces. ARGV: the caller's time, ahead, retention (seconds).
local wall, time = tonumber(ARGV[1]), clock()
local since, kept = epoch_of(KEYS[1], KEYS[2], wall, tonumber(ARGV[2]), tonumber(ARGV[3]), time)
forget(KEYS[2], wall, kept, time)
return since
