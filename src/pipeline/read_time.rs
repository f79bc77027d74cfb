//! The time that one request has for all its reads of the chain.
//!
//! Each read ends by itself; a request that makes several must not wait for as long as all of them together.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::pipeline::Ports;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;

/// As long as one read may take by itself (`chain::reader`).
pub(super) const READS_TIME_MAX: Duration = Duration::from_secs(6);

/// Until when a request may read, in monotonic microseconds. `None`: it makes one read, whose time begins when it waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadTime(Option<u64>);

impl ReadTime {
    /// For one read.
    pub(super) const OF_ONE_READ: Self = Self(None);

    /// It begins now.
    pub(super) fn of(clock: &dyn Clock, limit: Duration) -> Self {
        Self(Some(after(clock, limit)))
    }

    /// The read's answer, or a fault when the time is over first.
    pub(super) async fn bound<T>(
        self,
        ports: &Ports,
        read: BoxFuture<'_, Result<T, ChainFault>>,
    ) -> Result<T, ChainFault> {
        let until_micros = self.0.unwrap_or_else(|| after(&*ports.clock, READS_TIME_MAX));
        let left = Duration::from_micros(until_micros.saturating_sub(ports.clock.monotonic_micros()));
        timeout(left, read).await.unwrap_or_else(|_| Err(ports.chain.out_of_time()))
    }
}

fn after(clock: &dyn Clock, limit: Duration) -> u64 {
    clock.monotonic_micros().saturating_add(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX))
}
