//! The name of every key in Redis. A later release that keeps anything otherwise begins its names with another version.
//!
//! Such a release keeps the former ones away before it serves: a release with the names `tg3:` writes `names tg3:` into each
//! shard's binding under `tg2:`, which ends the sessions of this one.
//!
//! In front of each stands `store.redis.prefix`, so that several deployments can share a Redis.
//!
//! Names carry a shard between braces, which is what a cluster chooses the slot by. All keys of one agent carry the
//! agent's shard, so that a script finds them in one slot; so does the shard's epoch. Keys are made so that their digests'
//! shard is their agent's, which takes 1,024 draws, half a millisecond for each key that is made; in two slots a change of keys would be
//! two steps, of which one may fail. A name is written straight into the command that it is for.

use std::{fmt, net::IpAddr};

use alloy::primitives::{B256, U256};
use crc::{CRC_16_XMODEM, Crc};
use redis::{RedisWrite, ToRedisArgs};

use crate::domain::{AgentId, ClientNet, KeyDigest, Nonce};
use crate::ports::{KeyBudget, RouteScope, Scope};

/// The start of every name: the product and the version of the layout.
const LAYOUT: &str = "tg2:";

/// The former layout, which had no prefixes in front.
const FORMER: &str = "tg1:";

/// The start of what a binding says where a later release has names of its own.
pub(super) const LATER: &str = "names ";

/// How many shards there are; part of the layout. Each has an epoch of its own.
pub(super) const SHARDS: u16 = 1_024;

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// The checksum that a cluster counts slots by.
static SLOT: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// An odd number with no pattern in its bits: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Decides in which slot a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard(u16);

impl Shard {
    pub(super) const FIRST: Self = Self(0);

    pub(super) fn of_agent(agent: AgentId) -> Self {
        Self::of_number(agent.token_id())
    }

    pub(super) fn of_client(client: ClientNet) -> Self {
        let bits = match client.address() {
            IpAddr::V4(v4) => v4.to_bits().into(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        Self::of_number(U256::from(bits))
    }

    /// A hash of the number: those that registries and networks hand out have patterns of all kinds.
    fn of_number(number: U256) -> Self {
        let mixed = number.into_limbs().into_iter().fold(0, |mixed: u64, limb| {
            let mixed = (mixed ^ limb).wrapping_mul(MIX);
            mixed ^ (mixed >> 32)
        });
        let [high, low, ..] = mixed.wrapping_mul(MIX).to_be_bytes();
        Self(u16::from_be_bytes([high, low]) % SHARDS)
    }

    pub(super) fn of_digest(digest: &KeyDigest) -> Self {
        let [high, low, ..] = digest.to_bytes();
        Self(u16::from_be_bytes([high, low]) % SHARDS)
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..SHARDS).map(Self)
    }

    /// The place among all shards.
    pub(super) fn place(self) -> usize {
        usize::from(self.0)
    }

    /// The slot of a cluster that the shard's keys are in.
    pub(super) fn slot(self) -> u16 {
        SLOT.checksum(format!("{:x}", self.0).as_bytes()) % SLOTS
    }
}

/// A key's name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name<'a> {
    /// A string: the digest of the agent's current key.
    Record(AgentId),
    /// A list: the accepted times of an agent in a scope.
    Window(AgentId, &'a Scope),
    /// A list: the requests of a client that are counted against a budget for an agent's key.
    Meter(ClientNet, AgentId, KeyBudget),
    /// A list: the counted requests of a client on a public route.
    Visits(ClientNet, &'a RouteScope),
    /// A string: whose key a digest is, and what was declared with it.
    Entry(&'a KeyDigest),
    /// A string: the address of the account that signed for a key. Apart from its entry, which former releases read too.
    Signer(&'a KeyDigest),
    /// A string: the day on which a key was made, and behind a blank that of its last use. Apart from its entry, as its signer.
    Days(&'a KeyDigest),
    /// A sorted set: used nonces, by the time of their use or their signature's timestamp, whichever is later.
    Nonces(Shard),
    /// A hash: the life of the server that the shard's nonces are in, from which timestamp on signatures are taken, and for
    /// how long nonces are kept.
    Epoch(Shard),
    /// A hash: what the shard is for.
    Binding(Shard),
    /// A string that is written to see whether it can be.
    Probe(Shard),
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{LAYOUT}{{{:x}}}", self.shard().0)?;
        match *self {
            Self::Record(agent) => write!(out, "k:{:x}", agent.token_id()),
            Self::Window(agent, Scope::Api) => write!(out, "w:{:x}", agent.token_id()),
            Self::Window(agent, Scope::Tenant(tenant)) => write!(out, "w:{:x}:{tenant}", agent.token_id()),
            Self::Meter(client, agent, budget) => {
                let kind = match budget {
                    KeyBudget::Changes => 'm',
                    KeyBudget::Revocations => 'r',
                };
                write!(out, "{kind}:{:x}:{}", agent.token_id(), client.address())
            }
            Self::Visits(client, route) => write!(out, "v:{}:{}", client.address(), route.0),
            Self::Entry(digest) => write!(out, "d:{:x}", B256::from(digest.to_bytes())),
            Self::Signer(digest) => write!(out, "s:{:x}", B256::from(digest.to_bytes())),
            Self::Days(digest) => write!(out, "t:{:x}", B256::from(digest.to_bytes())),
            Self::Nonces(_) => out.write_str("n"),
            Self::Epoch(_) => out.write_str("e"),
            Self::Binding(_) => out.write_str("b"),
            Self::Probe(_) => out.write_str("p"),
        }
    }
}

impl Name<'_> {
    pub(super) fn shard(&self) -> Shard {
        match *self {
            Self::Record(agent) | Self::Window(agent, _) | Self::Meter(_, agent, _) => Shard::of_agent(agent),
            Self::Visits(client, _) => Shard::of_client(client),
            Self::Entry(digest) | Self::Signer(digest) | Self::Days(digest) => Shard::of_digest(digest),
            Self::Nonces(shard) | Self::Epoch(shard) | Self::Binding(shard) | Self::Probe(shard) => shard,
        }
    }
}

/// A name as it is sent: behind the deployment's prefix.
pub(super) struct Prefixed<'a>(pub(super) &'a str, pub(super) Name<'a>);

impl ToRedisArgs for Prefixed<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(format_args!("{}{}", self.0, self.1));
    }
}

/// An agent's nonce in the set of its shard.
pub(super) fn nonce(agent: AgentId, nonce: Nonce) -> String {
    format!("{:x}:{:x}", agent.token_id(), nonce.value())
}

/// The name and text that stand at a shard's epoch in the former layout, and its text. It is no hash there, so that every release with those
/// names fails before it serves.
pub(super) fn former_epoch(shard: Shard) -> (String, String) {
    (format!("{FORMER}{{{:x}}}e", shard.0), format!("{LATER}{LAYOUT}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use alloy::primitives::U256;

    use redis::{RedisWrite, ToRedisArgs};

    use super::{Name, Prefixed, Shard, former_epoch, nonce};
    use crate::domain::{AgentId, ClientNet, KeyDigest, Nonce};
    use crate::ports::{KeyBudget, RouteScope, Scope};

    /// Without a prefix. No other code can forget it.
    impl ToRedisArgs for Name<'_> {
        fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
            Prefixed("", *self).write_redis_args(out);
        }
    }

    /// A change here makes everything unfindable that an earlier release has written.
    #[test]
    fn the_layout_stays_as_it_is() {
        assert_eq!(former_epoch(Shard(0x26f)), ("tg1:{26f}e".to_owned(), "names tg2:".to_owned()));
        let agent = AgentId::new(U256::from(0x12_345));
        let client = ClientNet::of("192.0.2.1".parse().unwrap());
        let digest = KeyDigest::from_bytes([0xab; 32]);
        let route = RouteScope("acme/docs/* GET".into());
        let acme = Scope::Tenant("acme".into());
        let names = [
            Name::Record(agent),
            Name::Window(agent, &Scope::Api),
            Name::Window(agent, &acme),
            Name::Meter(client, agent, KeyBudget::Changes),
            Name::Meter(client, agent, KeyBudget::Revocations),
            Name::Nonces(Shard::of_agent(agent)),
            Name::Epoch(Shard::of_agent(agent)),
            Name::Binding(Shard::of_agent(agent)),
            Name::Probe(Shard::of_agent(agent)),
            Name::Entry(&digest),
            Name::Signer(&digest),
            Name::Days(&digest),
            Name::Visits(client, &route),
        ]
        .map(|name| name.to_string());
        let expected = [
            "tg2:{26f}k:12345",
            "tg2:{26f}w:12345",
            "tg2:{26f}w:12345:acme",
            "tg2:{26f}m:12345:192.0.2.1",
            "tg2:{26f}r:12345:192.0.2.1",
            "tg2:{26f}n",
            "tg2:{26f}e",
            "tg2:{26f}b",
            "tg2:{26f}p",
            &format!("tg2:{{3ab}}d:{}", "ab".repeat(32)),
            &format!("tg2:{{3ab}}s:{}", "ab".repeat(32)),
            &format!("tg2:{{3ab}}t:{}", "ab".repeat(32)),
            "tg2:{3c}v:192.0.2.1:acme/docs/* GET",
        ];
        assert_eq!(names, expected);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let mut sent = redis::Cmd::new();
        sent.arg(Prefixed("blue:", Name::Record(agent)));
        assert!(sent.get_packed_command().ends_with(b"\r\nblue:tg2:{26f}k:12345\r\n"));
        assert_eq!(nonce(agent, Nonce::new(U256::from(255))), "12345:ff");
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // As `CLUSTER KEYSLOT 0` says.
        assert_eq!(Shard(0).slot(), 13_907);
        let slots: BTreeSet<u16> = Shard::all().map(Shard::slot).collect();
        assert!(slots.len() > 900 && slots.last() < Some(&16_384), "{}", slots.len());
    }

    /// In a row, in steps of a power of two or of ten, or with a part that is always the same in front.
    #[test]
    fn agents_spread_over_shards_however_their_numbers_are_made() {
        let steps = (0..=240).step_by(8).map(|bits| U256::from(1) << bits);
        let tens = (1..60).map(|digits| U256::from(10).pow(U256::from(digits)));
        for step in steps.chain(tens) {
            for first in [U256::ZERO, U256::from(7) << 200] {
                let shards: BTreeSet<usize> = (1_u64..=1_024)
                    .map(|number| first.wrapping_add(step.wrapping_mul(U256::from(number))))
                    .map(|number| Shard::of_agent(AgentId::new(number)).place())
                    .collect();
                // Of 1,024 balls in as many bins 647 bins hold one on average.
                assert!(shards.len() > 400, "{step}: {}", shards.len());
            }
        }
    }
}
