//! What a request brings to be let in, in well-formed types: listeners make these, the pipeline judges them.

use crate::domain::{
    AgentId, ClientNet, KeyDigest, MessageRefusal, Nonce, NonceClaim, SignatureBytes, SignedMessage,
    UnixSeconds, WebOrigin,
};
use crate::pipeline::Access;

/// One request for admission.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The proof of who asks.
    pub credential: Credential,
    /// Where the request comes from, for limits on refused credentials.
    pub client: ClientNet,
    /// The application's origin, to be compared with the endpoint declared for the key.
    pub origin: Option<WebOrigin>,
    /// The rules of the listener or route.
    pub access: &'a Access,
}

/// The proof of who asks.
#[derive(Debug, Clone)]
pub enum Credential {
    /// An API key.
    Key {
        /// The digest of the key; the key itself stays at the listener.
        digest: KeyDigest,
        /// The agent that the request names, if it does: then the key must be that agent's.
        named: Option<AgentId>,
    },
    /// A signature of the agent's owner.
    Signature(SignedRequest),
    /// Signatures over the request itself.
    Messages(SignedMessages),
}

/// A request that claims to be signed itself by who may act for the agent (ERC-8128). One of its signatures is enough.
#[derive(Debug, Clone)]
pub struct SignedMessages {
    /// The agent, whose name is a part of what is signed.
    pub agent: AgentId,
    /// The signatures, in the order in which they are judged.
    pub messages: Vec<SignedMessage>,
    /// The refusal of an earlier signature, which stands for all if none counts.
    pub first_refusal: Option<MessageRefusal>,
}

/// A request that claims to be signed by the agent's owner (contract, "Signed request").
#[derive(Debug, Clone)]
pub struct SignedRequest {
    /// The agent.
    pub agent: AgentId,
    /// The nonce.
    pub nonce: Nonce,
    /// The timestamp.
    pub signed_at: UnixSeconds,
    /// The signature over the three above.
    pub signature: SignatureBytes,
}

/// A request to read a profile that claims to be signed by the agent's owner. It has no nonce: it changes nothing, and may
/// be repeated.
#[derive(Debug, Clone)]
pub struct ProfileRead {
    /// The agent.
    pub agent: AgentId,
    /// The timestamp.
    pub signed_at: UnixSeconds,
    /// The signature over the two above.
    pub signature: SignatureBytes,
}

impl Credential {
    /// The kind, as the configuration names it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Key { .. } => "api_key",
            Self::Signature(_) => "signature",
            Self::Messages(_) => "erc8128",
        }
    }

    /// The agent that the request names, for the details of a denial.
    pub const fn named_agent(&self) -> Option<AgentId> {
        match self {
            Self::Key { named, .. } => *named,
            Self::Signature(signed) => Some(signed.agent),
            Self::Messages(signed) => Some(signed.agent),
        }
    }

    /// True if the chain is read to tell who signed.
    pub(crate) const fn is_signed(&self) -> bool {
        match self {
            Self::Key { .. } => false,
            Self::Signature(_) | Self::Messages(_) => true,
        }
    }
}

impl SignedRequest {
    /// The nonce that has to be claimed before the signature may count.
    pub(crate) const fn claim(&self) -> NonceClaim {
        NonceClaim { nonce: self.nonce, signed_at: self.signed_at }
    }
}
