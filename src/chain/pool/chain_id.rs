//! Which chain is read. A configured id decides; else a node on the chain that signatures are for; else all nodes that
//! answer must agree. Once known it does not change: answers of other chains do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use alloy::primitives::U64;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Mutex as TurnMutex;
use tokio::task::JoinSet;

use crate::chain::fault::ReadError;
use crate::chain::pool::{Call, Pool};
use crate::ports::chain::ChainFault;

pub(super) struct ChainId {
    known: OnceLock<u64>,
    signature_chain: u64,
    /// One asks at a time.
    asking: TurnMutex<()>,
    /// The last answer of each node. A node that is silent now still belongs to its chain, so that one lost answer does
    /// not leave the choice to a node of another chain.
    reported: Mutex<BTreeMap<usize, u64>>,
}

impl ChainId {
    pub(super) fn new(configured: Option<u64>, signature_chain: u64) -> Self {
        let known = configured.map_or_else(OnceLock::new, OnceLock::from);
        Self { known, signature_chain, asking: TurnMutex::new(()), reported: Mutex::default() }
    }
}

impl Pool {
    /// The id of the chain that is read. Fails when no node answers, or they disagree and no setting says which is right.
    pub(in crate::chain) async fn chain_id(&self) -> Result<u64, ChainFault> {
        if let Some(id) = self.chain_id.known.get() {
            return Ok(*id);
        }
        let _turn = self.chain_id.asking.lock().await;
        if let Some(id) = self.chain_id.known.get() {
            return Ok(*id);
        }
        let found = self.find_chain_id().await;
        found.map(|id| *self.chain_id.known.get_or_init(|| id))
    }

    async fn find_chain_id(&self) -> Result<u64, ChainFault> {
        let mut asked = JoinSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let (node, limit) = (Arc::clone(node), self.request_timeout);
            let call = [Call { method: "eth_chainId", params: json!([]) }];
            asked.spawn(async move {
                let answers = node.send(limit, &call, false).await;
                let id = answers.and_then(|mut answers| answers.next::<U64>());
                (index, id.map(|id| id.to::<u64>()))
            });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(index, _)| *index);
        let (before, ids) = self.remember(&answers);
        if ids.contains(&self.chain_id.signature_chain) {
            return Ok(self.chain_id.signature_chain);
        }
        match (ids.first(), ids.len()) {
            (Some(id), 1) => Ok(*id),
            (Some(_), _) => {
                let shown = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
                if before != ids {
                    tracing::error!(
                        "the nodes are on different chains ({shown}), so none is used: set chain.chain_id"
                    );
                }
                Err(self.fault(0, "eth_call", ReadError::ChainsDiffer(shown)))
            }
            (None, _) => {
                let failed = answers.into_iter().find_map(|(node, id)| Some((node, id.err()?)));
                let (node, error) = failed.unwrap_or((0, ReadError::Busy));
                self.failed(node, &error, "eth_chainId");
                Err(self.fault(node, "eth_call", error))
            }
        }
    }

    /// The chains of the nodes: before these answers, and with them.
    fn remember(&self, answers: &[(usize, Result<u64, ReadError>)]) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let mut reported = self.chain_id.reported.lock();
        let before = reported.values().copied().collect();
        reported.extend(answers.iter().filter_map(|(node, id)| Some((*node, *id.as_ref().ok()?))));
        (before, reported.values().copied().collect())
    }
}
