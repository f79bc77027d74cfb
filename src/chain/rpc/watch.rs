//! Looks after the nodes: which chain each is on, how far it is, whether one that was given up has recovered.
//!
//! The one place that probes. What it finds goes into `health`; what changes by it is said in the log and the metrics.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::U64;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::chain::fault::ReadError;
use crate::chain::rpc::Pool;
use crate::chain::rpc::breaker::Class;
use crate::chain::rpc::heads::Seen;
use crate::chain::rpc::health::{Checkup, Health, Vitals};
use crate::chain::rpc::lead::latest_seen;
use crate::chain::rpc::transport::{Node, NodeAnswer};
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// How often it is looked at what is due.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Pool {
    /// Looks after the nodes for as long as it is polled.
    pub async fn watch(&self) {
        loop {
            self.tick().await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Asks the nodes what is due, all at once, and returns when each has answered or had the time of one try.
    pub async fn tick(&self) {
        let _watching = self.watching.lock().await;
        self.examine().await;
    }

    /// Returns when each node was asked once which chain it is on. Whoever comes first asks.
    pub(super) async fn be_acquainted(&self) {
        if self.health.lock().were_all_asked() {
            return;
        }
        let _watching = self.watching.lock().await;
        if !self.health.lock().were_all_asked() {
            self.examine().await;
        }
    }

    /// Only one at a time: the caller holds `watching`.
    async fn examine(&self) {
        let begun = self.clock.monotonic_micros();
        let due = self.health.lock().due(begun);
        let mut probes = JoinSet::new();
        for checkup in due.iter().copied() {
            let Some(node) = self.nodes.get(checkup.node).cloned() else { continue };
            if matches!(self.health.lock().complaint(checkup.node), Some(ReadError::GivenUp(_))) {
                node.begin_anew();
            }
            let (clock, metrics) = (Arc::clone(&self.clock), self.metrics.clone());
            let (limit, judge_age) = (self.request_timeout, self.judge_age);
            probes.spawn(async move {
                let probe = Probe { node: &node, limit, clock: &*clock, metrics: &metrics };
                (checkup, probe.run(checkup, judge_age).await)
            });
        }
        while let Some(probed) = probes.join_next().await {
            if let Ok((checkup, said)) = probed {
                let (now, grain) = self.moment(checkup.node);
                self.note(|health| health.examined(checkup.node, said.as_ref().copied(), now, grain));
            }
        }
        self.note(|health| {
            health.all_were_asked();
            // Those that answered first were compared with what the others said the last time. Not with what was to be
            // known by now: the last answer may have taken long.
            due.iter()
                .filter(|checkup| checkup.wants_head)
                .for_each(|checkup| health.compare_head(checkup.node, begun));
        });
    }

    /// A node failed: it may be given up now.
    pub(super) fn failed(&self, node: usize, class: Class, error: &ReadError) {
        let (now, grain) = self.moment(node);
        self.note(|health| health.failed(node, class, error, now, grain));
    }

    /// Changes what is known of the nodes, and says what that changes.
    pub(super) fn note(&self, change: impl FnOnce(&mut Health)) {
        let mut health = self.health.lock();
        change(&mut health);
        self.shown.lock().refresh(&health, &self.metrics);
    }

    /// Now, and a number that differs from replica to replica.
    pub(super) fn moment(&self, node: usize) -> (u64, u64) {
        (self.clock.monotonic_micros(), self.clock.unix_millis().wrapping_add(node as u64))
    }
}

/// A look at one node.
struct Probe<'a> {
    node: &'a Node,
    /// How long each question may take.
    limit: Duration,
    clock: &'a dyn Clock,
    metrics: &'a Metrics,
}

impl Probe<'_> {
    async fn run(&self, checkup: Checkup, judge_age: bool) -> Result<Vitals, ReadError> {
        let mut vitals = Vitals::default();
        if checkup.wants_chain {
            let chain = self.ask("eth_chainId", json!([]), |answer| self.node.result::<U64>(answer));
            vitals.chain = Some(chain.await?.to());
        }
        if checkup.wants_head {
            vitals.head = Some(self.head(judge_age).await?);
        }
        Ok(vitals)
    }

    /// A block's own time costs a longer answer, and is asked for only where it counts.
    async fn head(&self, judge_age: bool) -> Result<Seen, ReadError> {
        if judge_age {
            let seen = |answer| latest_seen(self.node, answer, self.clock.unix_millis());
            return self.ask("eth_getBlockByNumber", json!(["latest", false]), seen).await;
        }
        let number = self.ask("eth_blockNumber", json!([]), |answer| self.node.result::<U64>(answer));
        Ok(Seen::from(number.await?.to::<u64>()))
    }

    async fn ask<T>(
        &self,
        method: &'static str,
        params: Value,
        understand: impl FnOnce(NodeAnswer) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let answer = self.node.ask_within(self.limit, method, params, self.clock, self.metrics).await;
        let understood = answer.and_then(understand);
        if let Err(error) = &understood {
            self.metrics.rpc_errors.with_label_values(&[method, error.kind()]).inc();
        }
        understood
    }
}

/// What was last said of each node, so that each change is said once.
pub(super) struct Shown {
    nodes: Vec<ShownNode>,
    chain: Option<u64>,
    dispute: Option<String>,
}

struct ShownNode {
    name: Arc<str>,
    last: Option<Option<ReadError>>,
}

impl Shown {
    pub(super) fn new(nodes: &[Arc<Node>]) -> Self {
        let shown = |node: &Arc<Node>| ShownNode { name: Arc::clone(node.name()), last: None };
        Self { nodes: nodes.iter().map(shown).collect(), chain: None, dispute: None }
    }

    fn refresh(&mut self, health: &Health, metrics: &Metrics) {
        if let Some(chain) = health.chain().filter(|_| self.chain.is_none()) {
            self.chain = Some(chain);
            tracing::info!(chain_id = chain, "reads this chain");
        }
        let dispute = health.dispute();
        if let Some(chains) = dispute.as_ref().filter(|_| dispute != self.dispute) {
            tracing::error!(
                "the nodes are on different chains ({chains}), so none is used: set chain.chain_id"
            );
        }
        self.dispute = dispute;
        for (place, node) in self.nodes.iter_mut().enumerate() {
            let complaint = health.complaint(place);
            if complaint != Some(ReadError::Unvetted) {
                node.refresh(complaint, metrics);
            }
        }
    }
}

impl ShownNode {
    fn refresh(&mut self, complaint: Option<ReadError>, metrics: &Metrics) {
        if self.last.as_ref().is_some_and(|last| is_same(last.as_ref(), complaint.as_ref())) {
            return;
        }
        metrics.rpc_node_fit.with_label_values(&[&self.name]).set(i64::from(complaint.is_none()));
        match &complaint {
            None => tracing::info!(node = %self.name, "the RPC node is fit"),
            // Said once for all nodes.
            Some(ReadError::ChainsDiffer(_)) => {}
            Some(why) => tracing::warn!(node = %self.name, "the RPC node is not used: {why}"),
        }
        self.last = Some(complaint);
    }
}

/// Causes and heads change with every probe; that alone is no news.
fn is_same(last: Option<&ReadError>, now: Option<&ReadError>) -> bool {
    match (last, now) {
        (Some(ReadError::GivenUp(_)), Some(ReadError::GivenUp(_)))
        | (Some(ReadError::Behind { .. }), Some(ReadError::Behind { .. }))
        | (Some(ReadError::MadeUpHead { .. }), Some(ReadError::MadeUpHead { .. }))
        | (Some(ReadError::OldHead { .. }), Some(ReadError::OldHead { .. })) => true,
        _ => last == now,
    }
}
