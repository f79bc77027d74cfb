//! The blocks of the model's worlds, of all forks.

use alloy::primitives::{Address, B256, U256};
use alloy::sol_types::SolEvent;

use crate::chain::block::{Block, Date, Log};
use crate::chain::measures::{Measures, TRANSFER};
use crate::chain::{
    fixture::ALL, registries::calls::Staked, registries::documented::OrganizationVerified,
    registries::logs::Drops, tests::actions::Named,
};
use crate::domain::{Holders, Measure, Question};

/// Who holds the agent.
pub(super) const HELD: Holders = Holders::owned_by(Address::ZERO);

const TOKEN: Address = Address::repeat_byte(0x77);

/// Whom logs concern, where tokens of the holders give tiers.
pub(super) fn drops(logs: &[Log]) -> Drops {
    let question = Question::Balance { of_wallet: false };
    let token = Measure { source: "erc20", contract: TOKEN, question, thresholds: Vec::new() };
    let mut drops = ALL.drops(logs);
    Measures(vec![token]).add_drops(logs, &mut drops);
    drops
}

/// A block of the world: its parent by index, its height, the agent's version after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Made {
    pub(super) parent: usize,
    pub(super) height: u64,
    pub(super) version: u8,
}

/// A back end: its head, and the height up to which it has logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct BackEnd {
    pub(super) head: usize,
    pub(super) logs: u64,
}

pub(super) const ORGANIZATION: U256 = U256::from_limbs([9, 0, 0, 0]);

/// All blocks that were made, each known by its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Blocks(Vec<Made>);

impl Blocks {
    /// The first one.
    pub(super) fn new() -> Self {
        Self(vec![Made { parent: 0, height: 1, version: 0 }])
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn make(&mut self, parent: usize, changes: bool) -> usize {
        let Made { height, version, .. } = self.0[parent];
        let newest = self.0.iter().map(|made| made.version).max().unwrap();
        let version = if changes { newest + 1 } else { version };
        self.0.push(Made { parent, height: height + 1, version });
        self.0.len() - 1
    }

    pub(super) fn block(&self, made: usize) -> Block {
        let hash = |made: usize| B256::with_last_byte(u8::try_from(made).unwrap() + 1);
        let Made { parent, height, .. } = self.0[made];
        Block { number: height, hash: hash(made), parent: hash(parent), timestamp: made as u64 }
    }

    /// The chain that ends with this block, downwards.
    pub(super) fn chain(&self, from: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(from), |made| (*made != 0).then(|| self.0[*made].parent))
    }

    pub(super) fn date(&self, made: usize) -> Date {
        Date { timestamp: made as u64, number: self[made].height }
    }

    /// The log of a block, if the agent changes in it.
    pub(super) fn log(&self, made: usize, named: Named) -> Option<Log> {
        let Made { parent, version, .. } = self[made];
        let Block { number, hash, .. } = self.block(made);
        let (address, topics) = match named {
            Named::Agent => (ALL.identity, vec![Staked::SIGNATURE_HASH, U256::ONE.into(), B256::ZERO]),
            Named::Organization => {
                (ALL.organization().unwrap(), vec![OrganizationVerified::SIGNATURE_HASH, ORGANIZATION.into()])
            }
            Named::Holder => (TOKEN, vec![TRANSFER, HELD.owner.into_word(), B256::with_last_byte(1)]),
            Named::Nobody => (ALL.identity, Vec::new()),
        };
        (self[parent].version != version).then_some(Log {
            address,
            block_number: number,
            block_hash: hash,
            topics,
            first_word: None,
        })
    }
}

impl std::ops::Index<usize> for Blocks {
    type Output = Made;

    fn index(&self, made: usize) -> &Made {
        &self.0[made]
    }
}
