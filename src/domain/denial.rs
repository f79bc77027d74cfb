//! Why a well-formed request is denied (contract, "Errors"). A denial is an answer, not a failure.

use std::sync::Arc;

use alloy::primitives::{Address, U256};

use crate::domain::eip712::{Eip712Domain, OwnType};
use crate::domain::{
    agent_id::AgentId, freshness::UnixSeconds, held_key::KeyName, nonce::Nonce,
    signed_message::MessageRefusal, tier::Tier, window::RetryAfter,
};

/// What the request did wrong, with what the contract lists as details. Variants stand in the order of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// The signature is not the owner's.
    SignatureInvalid {
        /// The agent it was made for.
        agent: AgentId,
        /// The agent's current owner.
        owner: Address,
        /// Who signed; nothing when no signer can be recovered.
        recovered_signer: Option<Address>,
        /// The domain that it had to be made for.
        domain: Arc<Eip712Domain>,
        /// The own type that it had to be of; `None`: a documented one.
        own_type: Option<OwnType>,
    },
    /// The nonce was used before.
    ReplayDetected {
        /// The agent that was named.
        agent: AgentId,
        /// The nonce that was sent.
        nonce: Nonce,
    },
    /// The timestamp lies outside the acceptable window.
    TimestampRefused {
        /// The agent that was named.
        agent: AgentId,
        /// The nonce that was sent, where the message has one.
        nonce: Option<Nonce>,
    },
    /// The signature is of a time whose nonces may have been lost or forgotten.
    NonceForgotten {
        /// The agent that was named.
        agent: AgentId,
        /// The nonce that was sent.
        nonce: Nonce,
        /// Signatures made before this are refused.
        accepted_from: UnixSeconds,
        /// When the owner may sign again.
        retry_after: RetryAfter,
    },
    /// A request's own signature does not count. Ours: not in the contract's table.
    MessageRefused {
        /// The agent that was named, once it was read.
        agent: Option<AgentId>,
        /// The reason.
        refusal: MessageRefusal,
        /// When to sign again, where nonces may have been lost.
        retry_after: Option<RetryAfter>,
    },
    /// The agent is not a minted NFT.
    AgentNotFound {
        /// The agent that was named.
        agent: AgentId,
    },
    /// The key is unknown, revoked, rotated out or another agent's.
    InvalidApiKey {
        /// The agent that was named, if one was.
        agent: Option<AgentId>,
    },
    /// The agent has a key already.
    KeyAlreadyExists {
        /// The agent that was named.
        agent: AgentId,
    },
    /// The agent has keys, and none of this name.
    NoSuchKey {
        /// The agent that was named.
        agent: AgentId,
        /// The name; `None`: none was given, and each of several keys has one.
        name: Option<KeyName>,
    },
    /// The budget is used up.
    RateLimited {
        /// The agent whose budget it is; nothing for a client's budget when no agent was named.
        agent: Option<AgentId>,
        /// The agent's tier; nothing when the limit does not depend on it.
        tier: Option<Tier>,
        /// The limit that was reached.
        limit: u32,
        /// When to come back.
        retry_after: RetryAfter,
    },
    /// The agent's tier is too low.
    TierBlocked {
        /// The agent.
        agent: AgentId,
        /// The tier that it has.
        current: Tier,
        /// The tier that is asked for.
        required: Tier,
        /// The stake that opens that tier, in the token's smallest unit; `None` where no stake does.
        required_stake: Option<U256>,
    },
    /// The request's origin is not the one declared for the key, where that matters. Ours: not in the contract's table.
    EndpointMismatch {
        /// The agent.
        agent: AgentId,
    },
}

/// The agent, its tier and the limit that a denial is about, as far as it names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct About {
    /// The agent that was named, or that the credential is of.
    pub agent: Option<AgentId>,
    /// Its tier.
    pub tier: Option<Tier>,
    /// The limit that was reached.
    pub limit: Option<u32>,
}

impl Denial {
    /// The denial of a request whose own signature does not count.
    pub const fn of_message(agent: Option<AgentId>, refusal: MessageRefusal) -> Self {
        Self::MessageRefused { agent, refusal, retry_after: None }
    }

    /// The agent, tier and limit, for logs.
    pub fn about(&self) -> About {
        let of = |agent, tier, limit| About { agent, tier, limit };
        match self {
            Self::RateLimited { agent, tier, limit, .. } => of(*agent, *tier, Some(*limit)),
            Self::TierBlocked { agent, current, .. } => of(Some(*agent), Some(*current), None),
            Self::InvalidApiKey { agent } | Self::MessageRefused { agent, .. } => of(*agent, None, None),
            Self::SignatureInvalid { agent, .. }
            | Self::ReplayDetected { agent, .. }
            | Self::TimestampRefused { agent, .. }
            | Self::NonceForgotten { agent, .. }
            | Self::AgentNotFound { agent }
            | Self::KeyAlreadyExists { agent }
            | Self::NoSuchKey { agent, .. }
            | Self::EndpointMismatch { agent } => of(Some(*agent), None, None),
        }
    }
}
