//! The development chain behind a node that fails as it is told.

use std::sync::Arc;

use alloy::primitives::{Address, U256};
use alloy::sol_types::SolCall;
use parking_lot::Mutex;
use serde_json::Value;

use crate::chain::fixture::{Reply, TestNode};
use crate::dev::fixture::{Identity, SetClock, deployed_by_clock, send};
use crate::dev::{accounts::SAMPLE_ACCOUNTS, chain::DevChain};
use crate::domain::{Registries, RegistrySet};

/// What a node does instead of answering, by method; nothing: it answers.
type Trick = Box<dyn Fn(&Value) -> Option<Reply> + Send>;

/// A chain with the registries and the sample agents, and a node in front of it.
pub(in crate::chain) struct DevScene {
    pub(in crate::chain) chain: Arc<DevChain>,
    /// When its blocks are made.
    pub(in crate::chain) clock: Arc<SetClock>,
    pub(in crate::chain) node: TestNode,
    pub(in crate::chain) registries: Registries,
    pub(in crate::chain) multicall: Address,
    trick: Arc<Mutex<Trick>>,
}

impl DevScene {
    /// The node answers.
    pub(in crate::chain) async fn new() -> Self {
        let (chain, on, clock) = deployed_by_clock();
        let registries = Registries {
            identity: on.identity,
            stake_vault: Some(on.stake_vault),
            reputation: Some(on.reputation),
            validation: Some(on.validation),
            set: RegistrySet::Documented { organization: on.organization },
        };
        let chain = Arc::new(chain);
        let trick: Arc<Mutex<Trick>> = Arc::new(Mutex::new(Box::new(|_| None)));
        let (answering, tricked) = (Arc::clone(&chain), Arc::clone(&trick));
        let node = TestNode::start(move |request| {
            (tricked.lock())(request).unwrap_or_else(|| {
                let answer = answering.answer(request.to_string().as_bytes());
                Reply::Http(200, String::from_utf8(answer).unwrap())
            })
        });
        Self { chain, clock, node: node.await, registries, multicall: on.multicall, trick }
    }

    /// Makes the node answer as it is told from now on.
    pub(in crate::chain) fn play(&self, trick: impl Fn(&Value) -> Option<Reply> + Send + 'static) {
        *self.trick.lock() = Box::new(trick);
    }

    /// Sends a transaction from the first account.
    pub(in crate::chain) fn call(&self, to: Address, call: &impl SolCall) {
        send(&self.chain, to, call);
    }

    /// Sends a transaction to the identity registry from the account that owns the agent.
    pub(in crate::chain) fn call_as(&self, agent: u64, call: &impl SolCall) {
        let from = SAMPLE_ACCOUNTS[usize::try_from(agent).unwrap()].address;
        self.chain.send(from, Some(self.registries.identity), call.abi_encode().into()).unwrap();
    }

    /// Hands an agent over.
    pub(in crate::chain) fn transfer(&self, agent: u64, to: Address) {
        let from = SAMPLE_ACCOUNTS[usize::try_from(agent).unwrap()].address;
        self.call_as(agent, &Identity::transferFromCall { from, to, id: U256::from(agent) });
    }
}
