//! A single listener, without the rest of the product.

use std::net::SocketAddr;
use std::sync::Arc;

use pingora::server::{RunArgs, Server};

use crate::app::error::StartError;
use crate::app::{bind, server_conf};
use crate::os::Os;
use crate::ports::clock::Clock;
use crate::serve::whole::{WholeAnswers, WholeService};
use crate::serve::worker::Worker;
use crate::serve::{HttpShell, Limits};
use crate::telemetry::metrics::Metrics;

/// How many connections it holds.
const CONNECTIONS_MAX: usize = 4_096;

/// Serves a single door, without the rest of the product.
pub(crate) fn run_door(
    door: &str,
    address: SocketAddr,
    service: impl WholeService,
) -> Result<(), StartError> {
    let mut server = Server::new_with_opt_and_conf(None, server_conf(0));
    server.bootstrap();
    let clock: Arc<dyn Clock> = Arc::new(Os::new());
    let service = WholeAnswers::new(service, Arc::clone(&clock));
    let limits = Limits::new(door, CONNECTIONS_MAX, None, &Metrics::new()?);
    let shell = HttpShell::new(service, None, clock, limits);
    server.add_service(Worker::new(door, bind(door, address, 1)?, shell));
    server.run(RunArgs::default());
    Ok(())
}
