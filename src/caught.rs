//! Panics of a library that are caught, and told by whoever catches them. Elsewhere a panic is an error of ours.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Does work that may panic in a library. The error is the panic's text.
///
/// # Errors
///
/// When the work panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let was_catching = IS_CATCHING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CATCHING.set(was_catching);
    done.map_err(|panic| text_of(panic.as_ref()).unwrap_or("no words").to_owned())
}

/// True if a panic of this thread is told by whoever catches it.
pub(crate) fn is_catching() -> bool {
    IS_CATCHING.get()
}

fn text_of(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::{caught, is_catching};

    #[test]
    fn a_panic_is_told_by_who_catches_it_and_by_nobody_else() {
        assert_eq!(caught(|| (is_catching(), 7)), Ok((true, 7)));
        let number = 7;
        assert_eq!(caught(|| -> () { panic!("page {number}") }), Err("page 7".to_owned()));
        assert_eq!(caught(|| -> () { panic!("page") }), Err("page".to_owned()));
        assert!(!is_catching());
    }
}
