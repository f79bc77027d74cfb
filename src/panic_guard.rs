//! Panics of a library that are caught, and reported by whoever catches them. Elsewhere a panic is an error of ours.
//!
//! Without it `garbage_and_zeros_over_whole_sectors_are_harmless_or_refused` of the embedded store fails: its library panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{cell::Cell, thread};

thread_local! {
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Does work that may panic in a library.
///
/// # Errors
///
/// When the work panicked.
pub(crate) fn panic_guard<T>(work: impl FnOnce() -> T) -> thread::Result<T> {
    let was_catching = IS_CATCHING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CATCHING.set(was_catching);
    done
}

/// True if a panic of this thread is told by whoever catches it.
pub(crate) fn is_catching() -> bool {
    IS_CATCHING.get()
}

#[cfg(test)]
mod tests {
    use super::{is_catching, panic_guard};

    #[test]
    fn a_panic_is_told_by_who_catches_it_and_by_nobody_else() {
        assert!(panic_guard(is_catching).unwrap());
        panic_guard(|| -> () { panic!("a page of garbage") }).unwrap_err();
        assert!(!is_catching());
    }
}
