//! A log for tests: what is said while its dispatch is in force, line by line.

use std::{io::Write, sync::Arc};

use parking_lot::Mutex;
use tracing::Dispatch;

/// The lines of the log.
#[derive(Clone, Default)]
pub(crate) struct LogCapture(Arc<Mutex<Vec<u8>>>);

impl Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl LogCapture {
    /// A subscriber that writes into it.
    pub(crate) fn dispatch(&self) -> Dispatch {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone());
        Dispatch::new(subscriber.finish())
    }

    /// The lines since the last look.
    pub(crate) fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock());
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }
}
