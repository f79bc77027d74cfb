//! The nodes: which one is asked, how often, until when, and how many calls are in flight.
//!
//! Knows JSON-RPC and no contract. `health` decides which node is asked next, `places` who may call now, `chain_id` which
//! chain is read; `node` is one request to one node.

mod chain_id;
mod deadline;
mod health;
mod node;
mod places;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

pub(super) use self::chain_id::{chain_id_call, read_chain_id};
pub(super) use self::deadline::Deadline;
pub(super) use self::node::{ANSWER_BYTES_MAX, Call, Node, NodeAnswer};
pub(super) use self::places::Lane;
use crate::chain::fault::ReadError;
use crate::chain::pool::chain_id::ChainId;
use crate::chain::pool::health::{Blame, Change, Health, Next, Tries, blame};
use crate::chain::pool::node::Access;
use crate::chain::pool::places::Places;
use crate::domain::rpc_header::RpcHeader;
use crate::domain::rpc_url::RpcUrl;
use crate::domain::secret::Secret;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// How a pool is configured.
#[derive(Debug)]
pub struct PoolSettings<'a> {
    /// The nodes, in order of preference.
    pub urls: &'a [RpcUrl],
    /// Headers for the nodes of an origin.
    pub headers: &'a [RpcHeader<Secret>],
    /// How long one try may take.
    pub request_timeout: Duration,
    /// How many calls a second each node gets at most.
    pub calls_per_second: Option<NonZeroU32>,
    /// The HTTP proxy through which nodes are reached.
    pub proxy: Option<&'a RpcUrl>,
    /// The chain that is read, if that is configured.
    pub chain_id: Option<u64>,
    /// The chain that signatures are for.
    pub signature_chain_id: u64,
}

/// How a read is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// On whose behalf.
    pub(super) lane: Lane,
    /// When it must be over, waiting for a place included.
    pub(super) deadline: Deadline,
    /// Every healthy node can answer it, whatever the chain holds. Then silence is the node's fault.
    pub(super) is_simple: bool,
}

/// JSON-RPC nodes of one chain.
pub struct Pool {
    nodes: Vec<Arc<Node>>,
    health: Mutex<Health>,
    chain_id: ChainId,
    places: Places,
    request_timeout: Duration,
    grain: AtomicU64,
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
        let access = Access {
            connect_timeout: settings.request_timeout,
            proxy: settings.proxy.cloned(),
            calls_per_second: settings.calls_per_second,
        };
        let node = |(place, url): (usize, &RpcUrl)| {
            let before =
                settings.urls.iter().take(place).filter(|other| other.origin() == url.origin()).count();
            Node::new(url, settings.headers, access.clone(), before).map(Arc::new)
        };
        let nodes: Vec<_> = settings.urls.iter().enumerate().map(node).collect::<Result<_, _>>()?;
        for node in &nodes {
            metrics.rpc_node_healthy.with_label_values(&[&**node.name()]).set(1);
        }
        Ok(Self {
            health: Mutex::new(Health::new(nodes.len())),
            chain_id: ChainId::new(settings.chain_id, settings.signature_chain_id),
            places: Places::new(),
            request_timeout: settings.request_timeout,
            grain: AtomicU64::new(clock.unix_millis()),
            nodes,
            clock,
            metrics,
        })
    }

    /// Sends these calls as one request until `read` makes something of the answers: to the same node again after a short
    /// pause, then to the next one, until the deadline. `read` also judges whether the answer counts.
    ///
    /// # Errors
    ///
    /// When no answer counted: the last error.
    pub(super) async fn ask<T>(
        &self,
        terms: &Terms,
        calls: &[Call],
        read: impl Fn(&Node, Vec<NodeAnswer>) -> Result<T, ReadError>,
    ) -> Result<T, ChainFault> {
        let method = method_of(calls);
        let limit = terms.deadline.left(self.now());
        let mut last = None;
        let tries = self.try_nodes(terms, calls, read, &mut last);
        match tokio::time::timeout(limit, tries).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err((node, error))) => Err(self.fault(node, method, error)),
            Err(_) => {
                let (node, error) = last.unwrap_or((0, ReadError::TimedOut(limit.as_millis())));
                Err(self.fault(node, method, error))
            }
        }
    }

    async fn try_nodes<T>(
        &self,
        terms: &Terms,
        calls: &[Call],
        read: impl Fn(&Node, Vec<NodeAnswer>) -> Result<T, ReadError>,
        last: &mut Option<(usize, ReadError)>,
    ) -> Result<T, (usize, ReadError)> {
        let Some(_place) = self.places.take(terms.lane).await else { return Err((0, ReadError::Busy)) };
        let mut tries = Tries::new(self.nodes.len(), self.grain.fetch_add(1, Ordering::Relaxed));
        loop {
            let next = self.health.lock().next(&tries, self.now());
            let node = match next {
                Next::Ask(node) => node,
                Next::Wait { until_micros } => {
                    let pause = Duration::from_micros(until_micros.saturating_sub(self.now()));
                    if pause > terms.deadline.left(self.now()) {
                        return Err(last.take().unwrap_or((0, ReadError::RateLimited(None))));
                    }
                    tokio::time::sleep(pause).await;
                    continue;
                }
                Next::GiveUp(unhealthy) => {
                    let unhealthy = unhealthy.map(|(node, cause)| (node, ReadError::Unhealthy(cause)));
                    return Err(last.take().or(unhealthy).unwrap_or((0, ReadError::Busy)));
                }
            };
            let Some(asked) = self.nodes.get(node) else { return Err((node, ReadError::Busy)) };
            let limit = self.request_timeout.min(terms.deadline.left(self.now()));
            let answer = asked.send(limit, calls, &*self.clock, &self.metrics).await;
            match answer.and_then(|answers| read(asked, answers)) {
                Ok(value) => {
                    self.succeeded(node, &tries, last.as_ref());
                    return Ok(value);
                }
                Err(error) => {
                    self.failed(node, &error, terms.is_simple, method_of(calls));
                    tries.failed(node, &error, terms.is_simple, self.now());
                    if last.as_ref().is_none_or(|(_, known)| says(known) <= says(&error)) {
                        *last = Some((node, error));
                    }
                }
            }
        }
    }

    fn succeeded(&self, node: usize, tries: &Tries, last: Option<&(usize, ReadError)>) {
        let change = self.health.lock().succeeded(node);
        self.tell(node, &change, None);
        let Some((_, error)) = last else { return };
        for suspect in tries.suspects(node) {
            let change = self.health.lock().failed(suspect, error, self.now(), self.some_grain());
            self.tell(suspect, &change, Some(error));
        }
    }

    /// Notes that a node failed to answer.
    fn failed(&self, node: usize, error: &ReadError, is_simple: bool, method: &str) {
        self.metrics.rpc_errors.with_label_values(&[method, error.kind()]).inc();
        let now = self.now();
        if let ReadError::RateLimited(pause) = error {
            self.health.lock().limited(node, *pause, now);
        }
        if let (ReadError::Behind { .. } | ReadError::Connection(_), Some(asked)) =
            (error, self.nodes.get(node))
        {
            asked.renew(now);
        }
        if blame(error, is_simple) == Blame::Node {
            let change = self.health.lock().failed(node, error, now, self.some_grain());
            self.tell(node, &change, Some(error));
        }
    }

    fn tell(&self, node: usize, change: &Change, error: Option<&ReadError>) {
        let Some(name) = self.nodes.get(node).map(|node| node.name()) else { return };
        let gauge = self.metrics.rpc_node_healthy.with_label_values(&[&**name]);
        match (change, error) {
            (Change::None, _) => {}
            (Change::Healthy, _) => {
                gauge.set(1);
                tracing::info!(node = %name, "RPC node healthy");
            }
            (Change::Unhealthy, Some(error)) => {
                gauge.set(0);
                tracing::warn!(node = %name, "RPC node unhealthy: {error}");
            }
            (Change::Unhealthy, None) => gauge.set(0),
        }
    }

    /// The fault of a read that was given up from without.
    pub(super) fn out_of_time(&self, limit: Duration) -> ChainFault {
        self.fault(0, "eth_call", ReadError::TimedOut(limit.as_millis()))
    }

    /// The fault of an answer that makes no sense.
    pub(super) fn unintelligible(&self) -> ChainFault {
        self.fault(0, "eth_call", ReadError::Unintelligible("its result is not what was asked for"))
    }

    fn fault(&self, node: usize, method: &'static str, error: ReadError) -> ChainFault {
        let endpoint =
            self.nodes.get(node).map_or_else(|| Arc::from("none"), |node| Arc::clone(node.endpoint()));
        ChainFault { endpoint, method, cause: Arc::new(error) }
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    fn some_grain(&self) -> u64 {
        self.grain.fetch_add(1, Ordering::Relaxed)
    }
}

/// The method that a request is counted under.
fn method_of(calls: &[Call]) -> &'static str {
    calls.last().map_or("none", |call| call.method)
}

/// How much an error says of why a read failed.
const fn says(error: &ReadError) -> u8 {
    if matches!(error, ReadError::Behind { .. }) {
        return 2;
    }
    let is_general = matches!(
        error,
        ReadError::TimedOut(_)
            | ReadError::RateLimited(_)
            | ReadError::WrongChain { .. }
            | ReadError::Unhealthy(_)
    );
    if is_general { 0 } else { 1 }
}

#[cfg(test)]
mod tests;
