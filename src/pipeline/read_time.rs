//! The time that one request has for all its reads of the chain.
//!
//! Each read ends by itself; a request that makes several must not wait for as long as all of them together.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use crate::pipeline::Ports;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;
use crate::within::now;

/// As long as one read may take by itself (`chain::reader`).
pub(super) const READS_TIME_MAX: Duration = Duration::from_secs(6);

/// Until when a request may read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadTime {
    until_micros: u64,
}

impl ReadTime {
    /// It begins now.
    pub(super) fn of(clock: &dyn Clock, limit: Duration) -> Self {
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        Self { until_micros: clock.monotonic_micros().saturating_add(limit) }
    }

    /// The read's answer, or a fault when the time is over first.
    pub(super) async fn bound<T>(
        self,
        ports: &Ports,
        read: impl Future<Output = Result<T, ChainFault>>,
    ) -> Result<T, ChainFault> {
        let mut read = pin!(read);
        // What is cached needs no timer.
        if let Poll::Ready(answer) = now(read.as_mut()).await {
            return answer;
        }
        let left = Duration::from_micros(self.until_micros.saturating_sub(ports.clock.monotonic_micros()));
        timeout(left, read).await.unwrap_or_else(|_| Err(ports.chain.out_of_time()))
    }
}
