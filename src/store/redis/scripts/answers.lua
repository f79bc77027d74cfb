-- The first number of every answer. `answers.rs` reads them.
local ADMITTED, LIMITED, KEY_REVOKED, NONCE_USED, NONCE_FORGOTTEN, DONE, CHANGED, UNUSED = 0, 1, 2, 3, 4, 5, 6, 7
