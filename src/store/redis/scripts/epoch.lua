-- Begins a new epoch of a slot's nonces when they may have been lost. Answers from which timestamp on signatures are
-- taken there.
--
-- KEYS: epoch. ARGV: the caller's time, ahead, retention (seconds).
return (epoch_of(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), clock()))
