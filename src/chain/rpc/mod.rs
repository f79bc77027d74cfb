//! The nodes: which of them are fit, which is asked, for how long, and how many calls are under way at once.
//!
//! Knows JSON-RPC and no contract. What can be decided without IO is decided in files of its own: `breaker`, `heads`
//! and `health` (who is fit), `following` (who is followed), `blame` (whose fault an error is), `places` (who may call now). `transport` is one call to one node;
//! `reading` is a read with its deadline and the next node when one fails; `lead` is the node that is followed; `watch`
//! looks after all of them.

pub mod lead;

mod blame;
mod breaker;
mod call;
mod deadline;
mod following;
mod heads;
mod health;
mod places;
mod reading;
pub(super) mod transport;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use self::blame::LogsTrouble;
pub use self::call::{At, CallOutcome};
pub use self::deadline::Deadline;
pub use self::places::Lane;
pub use self::reading::Terms;
use crate::chain::fault::ReadError;
use crate::chain::rpc::heads::HeadBounds;
use crate::chain::rpc::health::Health;
use crate::chain::rpc::places::Places;
use crate::chain::rpc::transport::Node;
use crate::chain::rpc::watch::Shown;
use crate::domain::rpc_header::RpcHeader;
use crate::domain::rpc_url::RpcUrl;
use crate::domain::secret::Secret;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// True when another read of the same is bound to fail in the same way, whichever node is asked: what is read is at
/// fault, and neither a node nor the configuration.
pub(super) fn lies_in_what_is_read(error: &ReadError) -> bool {
    // Nor is it said of what took too long: that may have been the node.
    let is_open = matches!(error, ReadError::NoCode(_) | ReadError::TimedOut(_));
    blame::blame(error, At::Latest) == blame::Blame::Unclear && !is_open
}

/// What a pool is made of.
#[derive(Debug)]
pub struct PoolSettings<'a> {
    /// The nodes, in order of preference.
    pub urls: &'a [RpcUrl],
    /// What goes with every call to the nodes of an origin, and nowhere else.
    pub headers: &'a [RpcHeader<Secret>],
    /// How long one try may take.
    pub request_timeout: Duration,
    /// How long after another node told a block a node must have it too.
    pub max_staleness: Duration,
    /// How old a node's latest block may be by its own time, if that is judged.
    pub max_head_age: Option<Duration>,
    /// The chain that the nodes must be on, if that is configured.
    pub chain_id: Option<u64>,
    /// The chain that signatures are for.
    pub signature_chain_id: u64,
}

/// JSON-RPC nodes of one chain.
pub struct Pool {
    nodes: Vec<Arc<Node>>,
    health: Mutex<Health>,
    /// Held by whoever looks after the nodes: no node is probed twice at once.
    watching: tokio::sync::Mutex<()>,
    /// What the log and the metrics last said of each node.
    shown: Mutex<Shown>,
    places: Places,
    request_timeout: Duration,
    /// Blocks are asked for their time.
    judge_age: bool,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl Pool {
    /// The pool of these nodes. Nothing is asked of them yet.
    ///
    /// # Errors
    ///
    /// When no HTTP client can be made, as without a TLS provider.
    pub fn new(
        settings: &PoolSettings<'_>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Self, reqwest::Error> {
        let node = |(place, url): (usize, &RpcUrl)| {
            let before =
                settings.urls.iter().take(place).filter(|other| other.origin() == url.origin()).count();
            Node::new(url, settings.headers, settings.request_timeout, before).map(Arc::new)
        };
        let nodes: Vec<_> = settings.urls.iter().enumerate().map(node).collect::<Result<_, _>>()?;
        let bounds = HeadBounds::new(settings.max_staleness, settings.max_head_age);
        let (chain, signature_chain) = (settings.chain_id, settings.signature_chain_id);
        Ok(Self {
            health: Mutex::new(Health::new(nodes.len(), chain, signature_chain, bounds)),
            judge_age: bounds.judge_age(),
            watching: tokio::sync::Mutex::new(()),
            shown: Mutex::new(Shown::new(&nodes)),
            places: Places::new(),
            request_timeout: settings.request_timeout,
            nodes,
            clock,
            metrics,
        })
    }

    /// Everything up to this block was followed: a node that is not so far lacks something.
    pub fn followed(&self, number: u64) {
        self.health.lock().followed(number, self.clock.monotonic_micros());
    }

    /// A fault of this node, counted.
    fn fault(&self, node: usize, method: &'static str, error: ReadError) -> ChainFault {
        self.metrics.rpc_errors.with_label_values(&[method, error.kind()]).inc();
        self.uncounted_fault(node, method, error)
    }

    fn uncounted_fault(&self, node: usize, method: &'static str, error: ReadError) -> ChainFault {
        let endpoint =
            self.nodes.get(node).map_or_else(|| Arc::from("none"), |node| Arc::clone(node.endpoint()));
        ChainFault { endpoint, method, cause: Arc::new(error) }
    }
}

#[cfg(test)]
mod tests;
