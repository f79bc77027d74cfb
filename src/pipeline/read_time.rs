//! The time that one request has for all its reads of the chain.
//!
//! Each read ends by itself; a request that makes several must not wait for as long as all of them together.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::pipeline::Ports;
use crate::ports::ChainFault;

/// As long as one read may take by itself (`chain::reader`), in microseconds.
const READS_MICROS_MAX: u64 = 6_000_000;

/// Until when a request may read, in monotonic microseconds. `None`: it makes one read, whose time begins when it waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadTime(Option<u64>);

impl ReadTime {
    /// For one read.
    pub(super) const OF_ONE_READ: Self = Self(None);

    /// Begins now.
    pub(super) fn begin(ports: &Ports) -> Self {
        Self(Some(ports.clock.monotonic_micros().saturating_add(READS_MICROS_MAX)))
    }

    /// The read's answer, or a fault when the time is over first.
    pub(super) async fn bound<T>(
        self,
        ports: &Ports,
        read: BoxFuture<'_, Result<T, ChainFault>>,
    ) -> Result<T, ChainFault> {
        let now = ports.clock.monotonic_micros();
        let left_micros = self.0.map_or(READS_MICROS_MAX, |until_micros| until_micros.saturating_sub(now));
        timeout(Duration::from_micros(left_micros), read)
            .await
            .unwrap_or_else(|_| Err(ports.chain.out_of_time()))
    }
}
