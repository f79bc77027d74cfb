//! What a request brings to be let in, in well-formed types: listeners make these, the pipeline judges them.

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::KeyDigest;
use crate::domain::client::ClientNet;
use crate::domain::endpoint::WebOrigin;
use crate::domain::freshness::UnixSeconds;
use crate::domain::nonce::{Nonce, NonceClaim};
use crate::domain::signature::SignatureBytes;
use crate::pipeline::Access;

/// One request for admission.
#[derive(Debug)]
pub struct Ask<'a> {
    /// What proves who asks.
    pub credential: Credential,
    /// Where the request comes from, for limits on refused credentials.
    pub client: ClientNet,
    /// The application's origin, to be compared with the endpoint declared for the key.
    pub origin: Option<WebOrigin>,
    /// The rules of the listener or route.
    pub access: &'a Access,
}

/// What proves who asks.
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
    /// Its kind, as the configuration names it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Key { .. } => "api_key",
            Self::Signature(_) => "signature",
        }
    }

    /// The agent that the request names, for the details of a denial.
    pub const fn named_agent(&self) -> Option<AgentId> {
        match self {
            Self::Key { named, .. } => *named,
            Self::Signature(signed) => Some(signed.agent),
        }
    }
}

impl SignedRequest {
    /// What has to be claimed before the signature may count.
    pub(crate) const fn claim(&self) -> NonceClaim {
        NonceClaim { nonce: self.nonce, signed_at: self.signed_at }
    }
}
