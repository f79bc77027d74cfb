//! How much gas a call names. Nodes refuse to run a call with more than they allow: 30 million, 16.7 million, a block's limit.
//!
//! Knows no node.

use parking_lot::Mutex;

use crate::chain::pool::Input;

/// Enough for all that decides, and for most nodes little enough.
const LITTLE: u64 = 15_000_000;

/// For how long less is named after a refusal, in microseconds. By then it may have been a fault, or another node's.
const REMEMBERED_MICROS: u64 = 600_000_000;

/// The gas of calls.
pub(super) struct Gas {
    /// The most gas that one call may burn.
    cap: u64,
    /// What was taken where more was refused, and until when no more is named.
    taken: Mutex<(u64, u64)>,
}

impl Gas {
    pub(super) fn new(cap: u64) -> Self {
        Self { cap, taken: Mutex::default() }
    }

    /// The gas that a call names; 0: none. What strangers write may take all that there is.
    pub(super) fn of(&self, input: Input, now_micros: u64) -> u64 {
        let wanted = if input == Input::Strangers { self.cap } else { self.cap.min(LITTLE) };
        let (taken, until_micros) = *self.taken.lock();
        if now_micros < until_micros { wanted.min(taken) } else { wanted }
    }

    /// The gas to name after a refusal of so much. Without any, nodes take what they allow.
    pub(super) const fn less(refused: u64) -> u64 {
        if refused > LITTLE { LITTLE } else { 0 }
    }

    /// A call with so much was answered after more was refused.
    pub(super) fn took(&self, gas: u64, now_micros: u64) {
        *self.taken.lock() = (gas, now_micros.saturating_add(REMEMBERED_MICROS));
    }
}

/// True if a node's error says that a call names too much gas, and not that it had too little.
pub(super) fn is_refusal(message: &str) -> bool {
    let text = message.to_ascii_lowercase();
    text.contains("gas") && !["out of gas", "too low", "required"].iter().any(|little| text.contains(little))
}
