//! Our contracts do what ERC-8004's do: one long script of calls has the same returns, reverts and logs on both.
//!
//! The digests are those of ERC-8004's own contracts, which run beside ours where a variable names their file.

use std::sync::Arc;

use alloy::consensus::Transaction;
use alloy::primitives::{Address, B256, U256, hex, keccak256};
use alloy::sol_types::SolCall;
use revm::context::result::ExecutionResult;

use crate::dev::erc8004_rig::{Creation, Erc8004, Identity8004, Reputation8004, Validation8004, named_file};
use crate::dev::fixture::{START_SECONDS, SetClock, chain, read};
use crate::dev::{accounts::SAMPLE_ACCOUNTS, chain::DevChain, erc8004::deploy};

mod agents;
mod reviews;

/// Parts of the script, and the digest of what ERC-8004's own contracts answered and logged in each.
const DIGESTS: [(&str, &str); 11] = [
    ("deployment", "a4d2ba993451348f"),
    ("registration", "cf47524b8bd5db90"),
    ("metadata", "9785d656cf7e8c20"),
    ("wallets", "9465a4d48a61c430"),
    ("wallets of contracts", "df4ede0eadcfca13"),
    ("transfers", "12865bdc348d52fb"),
    ("feedback", "e358c02b0a16a806"),
    ("reading of feedback", "18808e0164d9b193"),
    ("averages", "1786ecc9a09f888b"),
    ("validation", "48532834e671e90a"),
    ("upgrades", "ce9b7a772b3f66bc"),
];

#[test]
fn our_contracts_answer_revert_and_log_as_those_of_erc_8004() {
    let ours = Recording::of(&Creation::ours());
    if let Some(file) = named_file() {
        let theirs = Recording::of(&Creation::of_file(&file));
        for (index, (our, their)) in ours.steps.iter().zip(&theirs.steps).enumerate() {
            assert_eq!(our, their, "step {index}: ours left, ERC-8004's own right");
        }
        assert_eq!(theirs.digests(), digests());
    }
    assert_eq!(ours.digests(), digests());
}

fn digests() -> [(&'static str, String); DIGESTS.len()] {
    DIGESTS.map(|(part, digest)| (part, digest.to_owned()))
}

#[test]
fn each_sample_agent_has_its_owner_and_ids_begin_with_0() {
    let (chain, _) = chain();
    let on = deploy(&chain).unwrap();
    assert_eq!(read(&chain, on.identity, &Identity8004::getVersionCall {}), "2.0.0");
    let ids: Vec<u64> = on.agents.iter().map(|agent| agent.id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
    for agent in &on.agents {
        let id = U256::from(agent.id);
        let account = SAMPLE_ACCOUNTS[usize::try_from(agent.id).unwrap()];
        assert_eq!((agent.owner, agent.key), (account.address, account.key));
        assert_eq!(read(&chain, on.identity, &Identity8004::ownerOfCall { tokenId: id }), agent.owner);
        assert_eq!(read(&chain, on.identity, &Identity8004::getAgentWalletCall { agentId: id }), agent.owner);
    }
    let clients = Reputation8004::getClientsCall { agentId: U256::from(2) };
    assert_eq!(read(&chain, on.reputation, &clients), [SAMPLE_ACCOUNTS[9].address]);
    let validations = Validation8004::getSummaryCall {
        agentId: U256::from(2),
        validatorAddresses: vec![SAMPLE_ACCOUNTS[9].address],
        tag: String::new(),
    };
    let summary = read(&chain, on.validation, &validations);
    assert_eq!((summary.count, summary.avgResponse), (1, 100));
}

/// The accounts that act in the script. The first deploys and can upgrade.
fn account(who: usize) -> Address {
    SAMPLE_ACCOUNTS[who].address
}

/// A word with this number.
fn word(number: u64) -> B256 {
    B256::from(U256::from(number))
}

fn id(number: u64) -> U256 {
    U256::from(number)
}

/// A chain on which the script runs.
struct Stage {
    chain: DevChain,
    clock: Arc<SetClock>,
    on: Erc8004,
    now: u64,
    /// Name and first block.
    parts: Vec<(&'static str, u64)>,
}

impl Stage {
    fn new(creation: &Creation) -> Self {
        let (chain, clock) = chain();
        let on = Erc8004::deploy_of(creation, &chain, account(0));
        Self { chain, clock, on, now: START_SECONDS, parts: vec![("deployment", 1)] }
    }

    fn part(&mut self, name: &'static str) {
        self.parts.push((name, self.chain.ledger.lock().head().number + 1));
    }

    /// Sends a transaction a second later. It may fail.
    fn act(&mut self, who: usize, to: Address, call: &impl SolCall) {
        self.now += 1;
        self.clock.set(self.now);
        let _ = self.chain.send(account(who), Some(to), call.abi_encode().into());
    }

    fn identity(&mut self, who: usize, call: &impl SolCall) {
        self.act(who, self.on.identity, call);
    }

    fn reputation(&mut self, who: usize, call: &impl SolCall) {
        self.act(who, self.on.reputation, call);
    }

    fn validation(&mut self, who: usize, call: &impl SolCall) {
        self.act(who, self.on.validation, call);
    }
}

/// The outcomes of the script's transactions.
struct Recording {
    /// The calls, each with how it ended.
    steps: Vec<String>,
    parts: Vec<(&'static str, usize)>,
}

impl Recording {
    fn of(creation: &Creation) -> Self {
        let mut stage = Stage::new(creation);
        agents::run(&mut stage);
        reviews::run(&mut stage);
        let ledger = stage.chain.ledger.lock();
        let blocks = (1..=ledger.head().number).map(|number| ledger.block(number).unwrap());
        let steps = blocks.map(|block| {
            let mined = block.transaction.as_ref().unwrap();
            let (to, input) = (mined.envelope.to(), mined.envelope.input());
            // The code of a new contract differs.
            let (called, returned) = match to {
                Some(to) => (format!("{to} {input}"), mined.result.output().cloned()),
                None => ("creation".to_owned(), None),
            };
            let logs: Vec<_> = mined.logs().iter().map(|log| (log.address, &log.data)).collect();
            let ended = match &mined.result {
                ExecutionResult::Success { .. } => "success",
                ExecutionResult::Revert { .. } => "revert",
                ExecutionResult::Halt { .. } => "halt",
            };
            format!("{} {called}: {ended} {returned:?} {logs:?}", mined.from)
        });
        let parts = stage.parts.iter().map(|(name, first)| (*name, usize::try_from(first - 1).unwrap()));
        Self { steps: steps.collect(), parts: parts.collect() }
    }

    /// The first 8 bytes of the digest of each part.
    fn digests(&self) -> [(&'static str, String); DIGESTS.len()] {
        let ends = self.parts.iter().skip(1).map(|(_, first)| *first).chain([self.steps.len()]);
        let digests = self.parts.iter().zip(ends).map(|((name, first), end)| {
            let text = self.steps[*first..end].join("\n");
            (*name, hex::encode(&keccak256(text)[..8]))
        });
        digests.collect::<Vec<_>>().try_into().unwrap()
    }
}
