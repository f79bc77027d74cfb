//! The nodes: which one is asked, how often, until when, and how many calls are in flight.
//!
//! Knows JSON-RPC and no contract. `health` decides which node is asked next; `node` is one request to one node.

mod health;
mod node;

use std::sync::atomic::{AtomicU64, Ordering};
use std::{num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use self::health::{Health, Tries, is_behind, is_the_nodes};
use self::node::Node;
pub(super) use self::node::{ANSWER_BYTES_MAX, Answers, Call};
use crate::chain::fault::{ReadError, ReadFault};
use crate::domain::{PoolSettings, RpcHeader, Secret};
use crate::ports::Clock;
use crate::telemetry::Metrics;

/// Calls under way at once, over all nodes.
pub(crate) const PLACES_MAX: usize = 128;

/// How many reads of holders for strangers are under way at once.
pub(in crate::chain) const STRANGERS_MAX: usize = PLACES_MAX / 4;

/// The most connections to a node that wait unused for the next call.
pub(crate) const IDLE_MAX: usize = 32;

/// How long somebody waits for a read. The pipeline holds the reads of one request together to the same.
pub(super) const WAIT_TIME_MAX: Duration = Duration::from_secs(6);

/// How long one read may take, however many nodes are tried. A little less: who waits for one read alone hears why it failed.
const READ_TIME_MAX: Duration = Duration::from_millis(5_900);

/// Origin of a read's input. A node's health counts what this service asks for; a stranger's bad input counts against nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// The follower's. It needs no place, and goes first where `chain.calls_per_second` are used up.
    Follower,
    Ours,
    /// The same for several agents, each of whom may be asked about alone: a node that does not answer in time is not asked again.
    Group,
    /// An agent's code, texts or signature may be what a node fails at.
    Strangers,
}

/// JSON-RPC nodes of one chain.
pub struct Pool {
    nodes: Vec<Arc<Node>>,
    health: Mutex<Health>,
    /// Wakes reads that wait for a probe when it is over.
    probed: Notify,
    pub(super) chain_id: u64,
    /// How many calls a node gets in a second, if that is limited.
    pub(super) rate: Option<u32>,
    /// Until when the last answer shows that a node is well.
    answered_until_micros: AtomicU64,
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
            probed: Notify::new(),
            chain_id: settings.chain_id,
            rate: settings.calls_per_second.map(NonZeroU32::get),
            answered_until_micros: AtomicU64::new(0),
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
    pub(super) async fn ask<'a, T>(
        &'a self,
        deadline: u64,
        (calls, input): (&[Call], Input),
        read: impl Fn(&mut Answers<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadFault> {
        let read = &read;
        let request = |node: &'a Node, limit, is_again| async move {
            node.send(limit, calls, is_again).await.and_then(|mut answers| read(&mut answers))
        };
        let (limit, mut last) = (self.left(deadline), None);
        let tries = self.try_nodes(deadline, (calls, input), request, &mut last);
        let (node, error) = match timeout(limit, tries).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(failed)) => failed,
            Err(_) => {
                let unhealthy = || self.health.lock().unhealthy().map(|(_, why)| why);
                last.or_else(unhealthy).unwrap_or((0, ReadError::Timeout(limit.as_millis())))
            }
        };
        Err(self.fault(node, method_of(calls), error))
    }

    /// `request` asks a node once, within a time limit: again or not.
    async fn try_nodes<'a, T, F: Future<Output = Result<T, ReadError>>>(
        &'a self,
        deadline: u64,
        (calls, input): (&[Call], Input),
        request: impl Fn(&'a Node, Duration, bool) -> F,
        last: &mut Option<(usize, ReadError)>,
    ) -> Result<T, (usize, ReadError)> {
        const BUSY: (usize, ReadError) = (0, ReadError::Busy);
        // A call that begins later is not worth waiting for.
        let answer_time = self.request_timeout.min(self.left(deadline) / 2);
        let until = deadline.saturating_sub(answer_time.as_micros() as u64);
        let place = async || self.places.acquire().await.map_err(|_| BUSY);
        let (_place, turn_until, probes_until) = match input {
            Input::Follower => (None, deadline, until),
            Input::Ours | Input::Group => (Some(place().await?), until, until),
            Input::Strangers => (Some(place().await?), until, 0),
        };
        let mut tries = Tries::new(self.nodes.len(), has_logs(calls), (self.now(), probes_until));
        tries.is_of_group = input == Input::Group;
        loop {
            let probed = self.probed.notified();
            let now = self.now();
            let next = self.health.lock().next(&tries, now);
            let Some((node, from_micros)) = next else { return Err(last.take().unwrap_or(BUSY)) };
            if from_micros > now {
                let _ = timeout(self.left(from_micros.min(deadline)), probed).await;
                continue;
            }
            let asked = self.nodes.get(node).ok_or(BUSY)?;
            let turn = asked.await_turn(calls.len(), input);
            if timeout(self.left(turn_until), turn).await.is_err() {
                return Err(last.take().unwrap_or((node, ReadError::Busy)));
            }
            let began = self.now();
            let Some(others) = self.health.lock().begin(node, &mut tries, began) else { continue };
            // A share among more would be shorter than a slow node takes.
            let limit = self.request_timeout.min(self.left(deadline) / (others.min(2) + 1));
            match request(asked, limit, last.is_some()).await {
                Ok(value) => {
                    let until = self.now().saturating_add(READ_TIME_MAX.as_micros() as u64);
                    self.answered_until_micros.store(until, Ordering::Relaxed);
                    if input != Input::Strangers {
                        self.succeeded(node, &tries, last.as_ref());
                    }
                    return Ok(value);
                }
                // The caller has another way. It is no fault of the node, and no proof that the node is well.
                Err(error @ (ReadError::NoCode(_) | ReadError::Gas(_))) => return Err((node, error)),
                Err(error) => {
                    self.failed((node, input), &error, (calls, began));
                    tries.failed(node, &error, self.now());
                    // The first one says most, but that a node is behind says more.
                    if last.is_none() || is_behind(&error) {
                        *last = Some((node, error));
                    }
                }
            }
        }
    }

    fn succeeded(&self, node: usize, tries: &Tries, last: Option<&(usize, ReadError)>) {
        if self.health.lock().succeeded(node) {
            self.report(node, None);
            self.probed.notify_waiters();
        }
        let Some((_, error)) = last else { return };
        tries.suspects(node).for_each(|suspect| self.count_failure(suspect, error, tries.began_micros));
    }

    /// Notes that a node failed to answer.
    fn failed(&self, (node, input): (usize, Input), error: &ReadError, (calls, began): (&[Call], u64)) {
        let method = method_of(calls);
        self.metrics.rpc_errors.with_label_values(&[method, error.kind()]).inc();
        if let ReadError::RateLimited(Some(pause)) = error {
            self.health.lock().limited(node, *pause, has_logs(calls), self.now());
        }
        // Reads of an agent may be slow because of the agent. Reads of the head can't.
        let is_of_head = method == "eth_getBlockByNumber";
        let is_slow = is_of_head && matches!(error, ReadError::Timeout(_));
        // Of too many logs a node, or what stands before it, may say so by any answer.
        let is_of_logs = has_logs(calls) && error.is_refusal();
        if input != Input::Strangers && !is_of_logs && (is_the_nodes(error) || is_slow) {
            self.count_failure(node, error, began);
        }
    }

    fn count_failure(&self, node: usize, error: &ReadError, began_micros: u64) {
        if self.health.lock().failed(node, error, (began_micros, self.now())) {
            self.report(node, Some(error));
        }
        self.probed.notify_waiters();
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

    /// True when a node answered a read lately.
    pub(super) fn is_answered(&self) -> bool {
        self.now() < self.answered_until_micros.load(Ordering::Relaxed)
    }

    /// The fault of a read that was given up from without.
    pub(super) fn out_of_time(&self) -> ReadFault {
        self.fault(0, "eth_call", ReadError::Timeout(WAIT_TIME_MAX.as_millis()))
    }

    fn fault(&self, node: usize, method: &'static str, error: ReadError) -> ReadFault {
        let endpoint =
            self.nodes.get(node).map_or_else(|| Arc::from("none"), |node| Arc::clone(&node.endpoint));
        error.at(endpoint, method)
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.monotonic_micros()
    }

    fn left(&self, deadline: u64) -> Duration {
        Duration::from_micros(deadline.saturating_sub(self.now()))
    }
}

fn has_logs(calls: &[Call]) -> bool {
    calls.iter().any(|call| call.method == "eth_getLogs")
}

/// The method that a request is counted under.
fn method_of(calls: &[Call]) -> &'static str {
    calls.last().map_or("none", |call| call.method)
}

#[cfg(test)]
mod tests;
