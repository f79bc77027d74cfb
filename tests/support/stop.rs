//! Tells helper threads to end: when the case is done with them, and when it fails.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that helper threads look at between two things that they do.
#[derive(Default)]
pub(crate) struct Stop(AtomicBool);

/// Sets the flag when it is dropped, also by a panic.
pub(crate) struct StopsAtEnd<'a>(&'a Stop);

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// To be held beside the helper threads, inside of their scope.
    #[must_use]
    pub(crate) fn at_end(&self) -> StopsAtEnd<'_> {
        StopsAtEnd(self)
    }
}

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}
