//! For `tiergate-dev`: further listeners, a node in this process, and a listener without the rest of the product.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::app::lifecycle::{EarlySignals, Lifecycle};
use crate::app::process::{Listening, Process};
use crate::app::{App, RunError, StartError, handover::Handover};
use crate::config::listen::ShutdownSettings;
use crate::os::Os;
use crate::serve::{BufferedService, SILENT_TIME_MAX};
use crate::telemetry::Metrics;

/// How many connections a listener without the rest of the product holds.
const CONNECTIONS_MAX: usize = 4_096;

/// How often it is looked whether the node listens, and whether the service is ready.
const TRY_EVERY: Duration = Duration::from_millis(10);

/// How a process ends that nobody balances.
const SHUTDOWN: ShutdownSettings = ShutdownSettings { delay: Duration::ZERO, grace: Duration::from_secs(5) };

impl App {
    /// Adds a listener in the clear.
    pub(crate) fn add_listener(
        &mut self,
        name: &'static str,
        address: SocketAddr,
        service: impl BufferedService,
    ) -> Result<(), StartError> {
        self.process.open_whole(service, Listening::plain(name, &[address], self.descriptors.api))
    }

    /// Runs with a node in this process, which listens at this address a moment after everything else has begun. Calls
    /// `welcome` once there are listeners at all of these addresses and verifications can be answered.
    pub(crate) fn run_with_node(
        mut self,
        node: SocketAddr,
        addresses: Vec<SocketAddr>,
        welcome: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), RunError> {
        let readiness = Arc::clone(&self.readiness);
        let (addresses, welcome): (Arc<[_]>, _) = (addresses.into(), Arc::new(welcome));
        self.process.supervise("welcome", move || {
            let (readiness, addresses, welcome) =
                (Arc::clone(&readiness), Arc::clone(&addresses), Arc::clone(&welcome));
            async move {
                for address in &*addresses {
                    listening(*address).await;
                }
                while !readiness.report().is_ready() || readiness.report().signatures_accepted_from.is_some()
                {
                    sleep(TRY_EVERY).await;
                }
                welcome();
                std::future::pending().await
            }
        });
        self.run_after(move || listening(node))
    }
}

pub(crate) fn run_listener(
    name: &'static str,
    address: SocketAddr,
    service: impl BufferedService,
    early: EarlySignals,
) -> Result<Result<(), RunError>, StartError> {
    let lifecycle = Lifecycle::new(SHUTDOWN, None, Handover::default(), early);
    let mut process = Process::new(Arc::new(Os::new()), Metrics::new()?, SILENT_TIME_MAX, lifecycle);
    process.open_whole(service, Listening::plain(name, &[address], CONNECTIONS_MAX))?;
    Ok(process.run())
}

/// Returns when somebody listens at the address.
async fn listening(address: SocketAddr) {
    while TcpStream::connect(address).await.is_err() {
        sleep(TRY_EVERY).await;
    }
}
