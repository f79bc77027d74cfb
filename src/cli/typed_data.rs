//! An agent's request as typed data (EIP-712): what wallets take, and the body that the endpoints take once it is signed.

use alloy::primitives::B256;
use serde_json::{Value, json};

use crate::cli::output::with;
use crate::domain::agent_id::AgentId;
use crate::domain::eip712::{Eip712Domain, SigningDomain};
use crate::domain::freshness::UnixSeconds;
use crate::domain::nonce::Nonce;
use crate::wire::answers::typed_data;

/// A request that its agent's owner signs.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(super) struct Request {
    pub(super) domain: Eip712Domain,
    pub(super) agent: AgentId,
    pub(super) nonce: Nonce,
    pub(super) timestamp: UnixSeconds,
}

impl Request {
    /// The argument of `eth_signTypedData_v4`.
    pub(super) fn typed_data(&self) -> Value {
        with(typed_data(&self.domain), "message", Some(self.message()))
    }

    /// Reads [`Self::typed_data`]; `None` when it is that of other types.
    pub(super) fn read(typed: &Value) -> Option<Self> {
        let domain = read_domain(typed)?;
        let field = |name: &str| typed.get("message")?.get(name);
        Some(Self {
            domain,
            agent: AgentId::parse(field("agentId")?.as_str()?).ok()?,
            nonce: Nonce::parse(field("nonce")?.as_str()?).ok()?,
            timestamp: UnixSeconds(field("timestamp")?.as_u64()?),
        })
    }

    /// The digest that is signed.
    pub(super) fn digest(&self) -> B256 {
        SigningDomain::new(self.domain.clone()).digest(self.agent, self.nonce, self.timestamp)
    }

    /// The fields `agentId`, `signature`, `nonce` and `timestamp` of the request.
    pub(super) fn body(&self, signature: &str) -> Value {
        with(self.message(), "signature", Some(signature))
    }

    /// Ids may be too long for a JSON number.
    fn message(&self) -> Value {
        let Self { agent, nonce, timestamp, .. } = self;
        json!({ "agentId": agent.to_string(), "nonce": nonce.to_string(), "timestamp": timestamp.0 })
    }
}

/// The domain of typed data; `None` when its types are not those that this program signs.
pub(super) fn read_domain(typed: &Value) -> Option<Eip712Domain> {
    let domain = typed.get("domain")?;
    let text = |name: &str| domain.get(name)?.as_str();
    let domain = Eip712Domain {
        name: text("name")?.to_owned(),
        version: text("version")?.to_owned(),
        chain_id: domain.get("chainId")?.as_u64()?,
        verifying_contract: text("verifyingContract")?.parse().ok()?,
    };
    let ours = typed_data(&domain);
    ["types", "primaryType"].iter().all(|name| typed.get(name) == ours.get(name)).then_some(domain)
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, U256};
    use alloy_dyn_abi::TypedData;
    use serde_json::json;

    use super::Request;
    use crate::domain::agent_id::AgentId;
    use crate::domain::eip712::Eip712Domain;
    use crate::domain::freshness::UnixSeconds;
    use crate::domain::nonce::Nonce;

    fn request() -> Request {
        Request {
            domain: Eip712Domain {
                name: "Elsewhere".to_owned(),
                version: "2".to_owned(),
                chain_id: u64::MAX,
                verifying_contract: Address::repeat_byte(0xab),
            },
            agent: AgentId::new(U256::MAX),
            nonce: Nonce::new(U256::MAX - U256::ONE),
            timestamp: UnixSeconds(1_700_000_000),
        }
    }

    #[test]
    fn typed_data_is_what_other_signers_hash_to_the_same_digest_and_reads_as_it_was() {
        let text = request().typed_data().to_string();
        let theirs: TypedData = serde_json::from_str(&text).unwrap();
        assert_eq!(theirs.eip712_signing_hash().unwrap(), request().digest());
        assert_eq!(Request::read(&serde_json::from_str(&text).unwrap()), Some(request()));
    }

    #[test]
    fn typed_data_of_other_types_is_not_read() {
        for (pointer, value) in [
            ("/primaryType", json!("ProfileRead")),
            ("/types/Verification/0/type", json!("uint64")),
            ("/types/EIP712Domain", json!([])),
            ("/domain/chainId", json!("8004")),
            ("/message/agentId", json!(4)),
            ("/message/nonce", json!("0x7")),
            ("/message/timestamp", json!("1700000000")),
            ("/message", json!({})),
        ] {
            let mut typed = request().typed_data();
            *typed.pointer_mut(pointer).unwrap() = value;
            assert_eq!(Request::read(&typed), None, "{pointer}");
        }
    }
}
