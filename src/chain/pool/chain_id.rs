//! Which chain is read. A configured id decides; else a node on the chain that signatures are for; else all nodes that
//! answer must agree. Once known it does not change: answers of other chains do not count.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use alloy::primitives::U64;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use crate::chain::fault::ReadError;
use crate::chain::pool::{Call, Node, NodeAnswer, Pool};
use crate::ports::chain::ChainFault;

/// For how long a failure to find out is repeated without asking, in microseconds.
const FAILURE_SERVES_MICROS: u64 = 500_000;

pub(super) struct ChainId {
    known: OnceLock<u64>,
    signature_chain: u64,
    /// Held by whoever asks the nodes: when that failed last, and how.
    failure: tokio::sync::Mutex<Option<(u64, ChainFault)>>,
    /// The disagreement that the log told last.
    told: Mutex<String>,
}

impl ChainId {
    pub(super) fn new(configured: Option<u64>, signature_chain: u64) -> Self {
        let known = configured.map_or_else(OnceLock::new, OnceLock::from);
        Self { known, signature_chain, failure: tokio::sync::Mutex::default(), told: Mutex::default() }
    }
}

/// The call that asks a node for its chain.
pub(in crate::chain) fn chain_id_call() -> Call {
    Call { method: "eth_chainId", params: json!([]) }
}

/// The chain id in its answer.
pub(in crate::chain) fn read_chain_id(node: &Node, answer: NodeAnswer) -> Result<u64, ReadError> {
    let result = answer.map_err(|error| node.error(&error))?;
    let id: Result<U64, _> = serde_json::from_str(result.get());
    id.map(|id| id.to()).map_err(|_| ReadError::Unintelligible("its chain id is none"))
}

impl Pool {
    /// The id of the chain that is read.
    ///
    /// # Errors
    ///
    /// When no node answers, or they disagree and nothing says which is right.
    pub(in crate::chain) async fn chain_id(&self) -> Result<u64, ChainFault> {
        let of = &self.chain_id;
        if let Some(id) = of.known.get() {
            return Ok(*id);
        }
        let mut failure = of.failure.lock().await;
        if let Some(id) = of.known.get() {
            return Ok(*id);
        }
        if let Some((at, fault)) = &*failure
            && self.now().saturating_sub(*at) < FAILURE_SERVES_MICROS
        {
            return Err(fault.clone());
        }
        let found = self.find_chain_id().await;
        *failure = found.as_ref().err().map(|fault| (self.now(), fault.clone()));
        found.map(|id| *of.known.get_or_init(|| id))
    }

    async fn find_chain_id(&self) -> Result<u64, ChainFault> {
        let mut asked = JoinSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let (node, limit) = (std::sync::Arc::clone(node), self.request_timeout);
            let (clock, metrics) = (std::sync::Arc::clone(&self.clock), self.metrics.clone());
            asked.spawn(async move {
                let answers = node.send(limit, &[chain_id_call()], &*clock, &metrics).await;
                let id = answers.and_then(|mut answers| {
                    let none = ReadError::Unintelligible("it does not answer every call");
                    read_chain_id(&node, answers.pop().ok_or(none)?)
                });
                (index, id)
            });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(index, _)| *index);
        let ids: BTreeSet<u64> = answers.iter().filter_map(|(_, id)| id.as_ref().ok().copied()).collect();
        if ids.contains(&self.chain_id.signature_chain) {
            return Ok(self.chain_id.signature_chain);
        }
        let mut each = ids.iter();
        match (each.next(), each.next()) {
            (Some(id), None) => Ok(*id),
            (None, _) => {
                let failed = answers.into_iter().find_map(|(node, id)| id.err().map(|error| (node, error)));
                let (node, error) = failed.unwrap_or((0, ReadError::Busy));
                self.failed(node, &error, true, "eth_chainId");
                Err(self.fault(node, "eth_call", error))
            }
            (Some(_), Some(_)) => {
                let shown = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
                let mut told = self.chain_id.told.lock();
                if *told != shown {
                    tracing::error!(
                        "the nodes are on different chains ({shown}), so none is used: set chain.chain_id"
                    );
                    told.clone_from(&shown);
                }
                Err(self.fault(0, "eth_call", ReadError::ChainsDiffer(shown)))
            }
        }
    }
}
