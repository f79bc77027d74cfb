//! The nodes: which one is asked, how often, until when, and how many calls are in flight.
//!
//! Knows JSON-RPC and no contract. `health` decides which node is asked next; `node` is one request to one node.

mod health;
mod node;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::health::{Health, Next, Tries, is_the_nodes};
use self::node::Node;
pub(super) use self::node::{ANSWER_BYTES_MAX, Answers, Call};
use crate::chain::fault::ReadError;
use crate::domain::chain_settings::PoolSettings;
use crate::domain::rpc_header::RpcHeader;
use crate::domain::secret::Secret;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// Calls under way at once, over all nodes.
pub(crate) const PLACES_MAX: usize = 128;

/// How many of these strangers may hold: so many of their reads are under way at once. The rest is never theirs.
pub(in crate::chain) const STRANGERS_MAX: usize = PLACES_MAX / 4;

/// The most connections to a node that wait unused for the next call.
pub(crate) const IDLE_MAX: usize = 32;

/// How long somebody waits for a read. The pipeline holds the reads of one request together to the same.
pub(super) const WAIT_TIME_MAX: Duration = Duration::from_secs(6);

/// How long one read may take, however many nodes are tried. A little less: who waits for one read alone hears why it failed.
const READ_TIME_MAX: Duration = Duration::from_millis(5_900);

/// Whose input a read has. A node's health counts what this service asks for; a stranger's bad input counts against nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Ours,
    /// An agent's code, texts or signature may be what a node fails at.
    Strangers,
}

/// JSON-RPC nodes of one chain.
pub struct Pool {
    nodes: Vec<Arc<Node>>,
    health: Mutex<Health>,
    pub(super) chain_id: u64,
    places: Semaphore,
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl Pool {
    /// The pool of these nodes, which get the headers of their origins. Nothing is asked of them yet.
    ///
    /// # Errors
    ///
    /// When no HTTP client can be made, as without a TLS provider.
    pub fn new(
        settings: &PoolSettings,
        headers: &[RpcHeader<Secret>],
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Self, reqwest::Error> {
        let nodes = settings.urls.iter().enumerate();
        let shared = || (Arc::clone(&clock), metrics.clone());
        let nodes = nodes.map(|node| Node::new(settings, headers, node, shared()).map(Arc::new));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            health: Mutex::new(Health::new(nodes.len())),
            chain_id: settings.chain_id,
            places: Semaphore::new(PLACES_MAX),
            request_timeout: settings.request_timeout,
            nodes,
            clock,
            metrics,
        })
    }

    /// When a read that begins now must be over, waiting for a place included, in microseconds of the monotonic clock.
    pub(super) fn deadline(&self) -> u64 {
        self.now() + READ_TIME_MAX.as_micros() as u64
    }

    /// Sends these calls as one request until `read` makes something of the answers: to the same node again after a short
    /// pause, then to the next one, until the deadline. `read` also judges whether the answer counts. A node that hangs is
    /// waited for no longer than leaves those that were not asked yet as much.
    pub(super) async fn ask<T>(
        &self,
        deadline: u64,
        (calls, input): (&[Call], Input),
        read: impl Fn(&mut Answers<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ChainFault> {
        let (limit, mut last) = (self.left(deadline), None);
        let tries = self.try_nodes(deadline, (calls, input), read, &mut last);
        let (node, error) = match tokio::time::timeout(limit, tries).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(failed)) => failed,
            Err(_) => last.unwrap_or((0, ReadError::Timeout(limit.as_millis()))),
        };
        Err(self.fault(node, method_of(calls), error))
    }

    async fn try_nodes<T>(
        &self,
        deadline: u64,
        (calls, input): (&[Call], Input),
        read: impl Fn(&mut Answers<'_>) -> Result<T, ReadError>,
        last: &mut Option<(usize, ReadError)>,
    ) -> Result<T, (usize, ReadError)> {
        const BUSY: (usize, ReadError) = (0, ReadError::Busy);
        let _place = self.places.acquire().await.map_err(|_| BUSY)?;
        let mut tries = Tries::new(self.nodes.len(), input, self.now());
        loop {
            let next = self.health.lock().next(&tries, self.now());
            let node = match next {
                Next::Ask(node) => node,
                Next::Wait(until_micros) if until_micros > deadline => {
                    return Err(last.take().unwrap_or((0, ReadError::RateLimited(None))));
                }
                Next::Wait(until_micros) => {
                    tokio::time::sleep(Duration::from_micros(until_micros.saturating_sub(self.now()))).await;
                    continue;
                }
                Next::GiveUp(unhealthy) => {
                    let unhealthy = || unhealthy.map(|(node, cause)| (node, ReadError::Unhealthy(cause)));
                    return Err(last.take().or_else(unhealthy).unwrap_or(BUSY));
                }
            };
            let asked = self.nodes.get(node).ok_or(BUSY)?;
            let others = self.health.lock().untried(&tries, node, self.now());
            // A share among more would be shorter than a slow node takes.
            let limit = self.request_timeout.min(self.left(deadline) / (others.min(2) + 1));
            let wrote_data = asked.writes_data();
            let answers = asked.send(limit, calls, last.is_some()).await;
            let answer = answers.and_then(|mut answers| read(&mut answers));
            if input == Input::Ours && method_of(calls) == "eth_call" {
                asked.called(wrote_data, answer.as_ref().err());
            }
            match answer {
                Ok(value) => {
                    if input == Input::Ours {
                        self.succeeded(node, &tries, last.as_ref());
                    }
                    return Ok(value);
                }
                // The caller has another way. It is no fault of the node, and no proof that the node is well: where this
                // was its probe, the other way is.
                Err(error @ ReadError::NoCode(_)) => {
                    self.health.lock().probe_from(node, self.now());
                    return Err((node, error));
                }
                Err(error) => {
                    self.failed((node, input), &error, method_of(calls));
                    tries.failed(node, &error, self.now());
                    // The first one says most, but that a node is behind says more.
                    if last.is_none() || matches!(error, ReadError::Behind { .. }) {
                        *last = Some((node, error));
                    }
                }
            }
        }
    }

    fn succeeded(&self, node: usize, tries: &Tries, last: Option<&(usize, ReadError)>) {
        if self.health.lock().succeeded(node) {
            self.report(node, None);
        }
        let Some((_, error)) = last else { return };
        tries.suspects(node).for_each(|suspect| self.count_failure(suspect, error));
    }

    /// Notes that a node failed to answer.
    fn failed(&self, (node, input): (usize, Input), error: &ReadError, method: &str) {
        self.metrics.rpc_errors.with_label_values(&[method, error.kind()]).inc();
        if let ReadError::RateLimited(pause) = error {
            self.health.lock().limited(node, *pause, self.now());
        }
        // Reads of an agent may be slow because of the agent. Reads of the head can't.
        let is_of_head = method == "eth_getBlockByNumber";
        let is_slow = is_of_head && matches!(error, ReadError::Timeout(_));
        if input == Input::Ours && (is_the_nodes(error) || is_slow) {
            self.count_failure(node, error);
        }
    }

    fn count_failure(&self, node: usize, error: &ReadError) {
        if self.health.lock().failed(node, error, self.now()) {
            self.report(node, Some(error));
        }
    }

    /// Tells that a node is healthy again, or no more.
    fn report(&self, node: usize, error: Option<&ReadError>) {
        let Some(node) = self.nodes.get(node).map(|node| node.name.as_str()) else { return };
        self.metrics.rpc_node_healthy.with_label_values(&[node]).set(i64::from(error.is_none()));
        match error {
            None => tracing::info!(node, "RPC node healthy"),
            Some(error) => tracing::warn!(node, "RPC node unhealthy: {error}"),
        }
    }

    /// True if a node gets the data of calls as `data`.
    pub(super) fn writes_data(&self) -> bool {
        self.nodes.iter().any(|node| node.writes_data())
    }

    /// The fault of a read that was given up from without.
    pub(super) fn out_of_time(&self) -> ChainFault {
        self.fault(0, "eth_call", ReadError::Timeout(WAIT_TIME_MAX.as_millis()))
    }

    fn fault(&self, node: usize, method: &'static str, error: ReadError) -> ChainFault {
        let endpoint =
            self.nodes.get(node).map_or_else(|| Arc::from("none"), |node| Arc::clone(&node.endpoint));
        error.at(endpoint, method)
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    fn left(&self, deadline: u64) -> Duration {
        Duration::from_micros(deadline.saturating_sub(self.now()))
    }
}

/// The method that a request is counted under.
fn method_of(calls: &[Call]) -> &'static str {
    calls.last().map_or("none", |call| call.method)
}

#[cfg(test)]
mod tests;
