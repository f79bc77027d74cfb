//! Threads beside a case. They end with it, also when it fails.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a case and the threads beside it go on.
pub(crate) struct Running(AtomicBool);

impl Running {
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Ends what runs when it is dropped: always, or by a panic alone.
struct End<'a> {
    running: &'a Running,
    always: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if self.always || std::thread::panicking() {
            self.running.0.store(false, Ordering::SeqCst);
        }
    }
}

/// Runs a case with so many threads beside it; gives what they came to. Threads go on until the case is over; a case
/// that waits for its threads gives up when one has failed. Both ask [`Running::is_on`].
pub(crate) fn beside<T: Send>(
    threads: usize,
    work: impl Fn(&Running) -> T + Sync,
    case: impl FnOnce(&Running),
) -> Vec<T> {
    let running = Running(AtomicBool::new(true));
    std::thread::scope(|scope| {
        let worker = || {
            let _end = End { running: &running, always: false };
            work(&running)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let end = End { running: &running, always: true };
        case(&running);
        drop(end);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
