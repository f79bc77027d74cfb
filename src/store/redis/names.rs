//! The name of every key in Redis. A later release that keeps anything otherwise begins its names with another version.
//!
//! Names carry a shard between braces, which is what a cluster chooses the slot by. All keys of one agent carry the
//! agent's shard, so that a script finds them in one slot; so does the shard's epoch.

use alloy::primitives::hex;

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::KeyDigest;
use crate::domain::client::ClientNet;
use crate::domain::nonce::Nonce;
use crate::ports::store::Scope;

/// What every name begins with: the product and the version of the layout.
const LAYOUT: &str = "tg1:";

/// How many shards there are; part of the layout. Each has an epoch of its own.
pub(super) const SHARDS: u16 = 1_024;

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// What decides in which slot a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard(u16);

impl Shard {
    pub(super) fn of_agent(agent: AgentId) -> Self {
        let bytes = agent.to_bytes();
        Self::of_two(bytes.last_chunk().copied().unwrap_or_default())
    }

    pub(super) fn of_digest(digest: &KeyDigest) -> Self {
        Self::of_two(digest.to_bytes().first_chunk().copied().unwrap_or_default())
    }

    /// Where the journal is.
    pub(super) const fn of_journal() -> Self {
        Self(0)
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..SHARDS).map(Self)
    }

    const fn of_two(bytes: [u8; 2]) -> Self {
        Self(u16::from_be_bytes(bytes) % SHARDS)
    }

    /// Its place among all shards.
    pub(super) fn place(self) -> usize {
        usize::from(self.0)
    }

    /// The slot of a cluster that the shard's keys are in.
    pub(super) fn slot(self) -> u16 {
        crc16(format!("{:x}", self.0).as_bytes()) % SLOTS
    }

    fn name(self, kind: char) -> String {
        format!("{LAYOUT}{{{:x}}}{kind}", self.0)
    }
}

/// A string: the digest of the agent's current key.
pub(super) fn record(agent: AgentId) -> String {
    of_agent(agent, 'k')
}

/// A set: digests that were the agent's and whose entries may still be there.
pub(super) fn replaced(agent: AgentId) -> String {
    of_agent(agent, 'r')
}

/// A list: the accepted times of an agent in a scope.
pub(super) fn window(agent: AgentId, scope: &Scope) -> String {
    let window = of_agent(agent, 'w');
    match scope {
        Scope::Api => window,
        Scope::Tenant(id) => format!("{window}:{id}"),
    }
}

/// A list: the counted requests of a client for an agent.
pub(super) fn meter(client: ClientNet, agent: AgentId) -> String {
    format!("{}:{}", of_agent(agent, 'm'), client.address())
}

/// A string that is there while the nonce is remembered.
pub(super) fn nonce(agent: AgentId, nonce: Nonce) -> String {
    format!("{}:{:x}", of_agent(agent, 'n'), nonce.value())
}

/// A hash: which process the shard's nonces are in, before which timestamp they may be missing, and for how long they
/// are kept.
pub(super) fn epoch(shard: Shard) -> String {
    shard.name('e')
}

/// A string: whose key a digest is, and what was declared with it.
pub(super) fn entry(digest: &KeyDigest) -> String {
    format!("{}:{}", Shard::of_digest(digest).name('d'), hex::encode(digest.to_bytes()))
}

/// A sorted set: changes of keys that have begun, by time.
pub(super) fn journal() -> String {
    Shard::of_journal().name('j')
}

/// A string that is written to see whether it can be.
pub(super) fn probe(shard: Shard) -> String {
    shard.name('p')
}

fn of_agent(agent: AgentId, kind: char) -> String {
    format!("{}:{:x}", Shard::of_agent(agent).name(kind), agent.token_id())
}

/// CRC-16/XMODEM, which a cluster counts slots by.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use alloy::primitives::U256;

    use super::{Shard, crc16, entry, epoch, journal, meter, nonce, probe, record, replaced, window};
    use crate::domain::agent_id::AgentId;
    use crate::domain::api_key::KeyDigest;
    use crate::domain::client::ClientNet;
    use crate::domain::nonce::Nonce;
    use crate::ports::store::Scope;

    /// A change here makes everything unfindable that an earlier release has written.
    #[test]
    fn the_layout_stays_as_it_is() {
        let agent = AgentId::new(U256::from(0x12_345));
        let client = ClientNet::of("192.0.2.1".parse().unwrap());
        let digest = KeyDigest::from_bytes([0xab; 32]);
        let names = [
            record(agent),
            replaced(agent),
            window(agent, &Scope::Api),
            window(agent, &Scope::Tenant("acme".into())),
            meter(client, agent),
            nonce(agent, Nonce::new(U256::from(255))),
            epoch(Shard::of_agent(agent)),
            probe(Shard::of_agent(agent)),
            journal(),
            entry(&digest),
        ];
        let expected = [
            "tg1:{345}k:12345",
            "tg1:{345}r:12345",
            "tg1:{345}w:12345",
            "tg1:{345}w:12345:acme",
            "tg1:{345}m:12345:192.0.2.1",
            "tg1:{345}n:12345:ff",
            "tg1:{345}e",
            "tg1:{345}p",
            "tg1:{0}j",
            &format!("tg1:{{3ab}}d:{}", "ab".repeat(32)),
        ];
        assert_eq!(names, expected);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let slots: BTreeSet<u16> = Shard::all().map(Shard::slot).collect();
        assert!(slots.len() > 900 && slots.last() < Some(&16_384), "{}", slots.len());
    }

    #[test]
    fn agents_in_a_row_spread_over_all_shards() {
        let shards: BTreeSet<usize> =
            (0_u64..1_024).map(|number| Shard::of_agent(AgentId::new(U256::from(number))).place()).collect();
        assert_eq!(shards.len(), 1_024);
    }
}
