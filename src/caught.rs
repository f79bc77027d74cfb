//! Panics of a library that are caught, and told by whoever catches them. Elsewhere a panic is an error of ours.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

thread_local! {
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Does work that may panic in a library.
///
/// # Errors
///
/// When the work panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> thread::Result<T> {
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
    use super::{caught, is_catching};

    #[test]
    fn a_panic_is_told_by_who_catches_it_and_by_nobody_else() {
        assert!(caught(is_catching).unwrap());
        caught(|| -> () { panic!("a page of garbage") }).unwrap_err();
        assert!(!is_catching());
    }
}
