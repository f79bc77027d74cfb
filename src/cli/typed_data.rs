//! An agent's request as typed data (EIP-712): what wallets take, and the body that the endpoints take once it is signed.

use std::fmt;

use alloy::primitives::B256;
use serde_json::{Value, json};

use crate::cli::output::with;
use crate::domain::{AgentId, Eip712Domain, KeyOperation, Nonce, OwnType, SigningDomain, UnixSeconds};
use crate::wire::answers::typed_data;

/// A request that its agent's owner signs.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(super) struct Request {
    pub(super) purpose: Purpose,
    pub(super) agent: AgentId,
    pub(super) nonce: Nonce,
    pub(super) timestamp: UnixSeconds,
}

/// The domain and type of a request.
#[derive(Clone, PartialEq)]
#[cfg_attr(test, derive(Debug))]
pub(super) struct Purpose {
    pub(super) domain: Eip712Domain,
    /// `None`: the type is `Verification`.
    pub(super) own_type: Option<OwnType>,
}

impl fmt::Display for Purpose {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.domain)?;
        self.own_type.iter().try_for_each(|own_type| write!(out, ", {own_type}"))
    }
}

impl Request {
    /// The argument of `eth_signTypedData_v4`.
    pub(super) fn typed_data(&self) -> Value {
        let Purpose { domain, own_type } = &self.purpose;
        let typed = typed_data(domain, own_type.as_ref().map(|own_type| own_type.operation));
        let service = own_type.as_ref().map(|own_type| &*own_type.service);
        with(typed, "message", Some(with(self.message(), "service", service)))
    }

    /// Reads [`Self::typed_data`]; `None` when it is that of other types.
    pub(super) fn read(typed: &Value) -> Option<Self> {
        let field = |name: &str| typed.get("message")?.get(name);
        let operation = KeyOperation::ALL
            .into_iter()
            .find(|operation| typed.get("primaryType").is_some_and(|name| name == operation.type_name()));
        let own_type = match operation {
            Some(operation) => Some(OwnType { operation, service: field("service")?.as_str()?.into() }),
            None => None,
        };
        Some(Self {
            purpose: Purpose { domain: read_domain(typed, operation)?, own_type },
            agent: AgentId::parse(field("agentId")?.as_str()?).ok()?,
            nonce: Nonce::parse(field("nonce")?.as_str()?).ok()?,
            timestamp: UnixSeconds(field("timestamp")?.as_u64()?),
        })
    }

    /// The digest that is signed.
    pub(super) fn digest(&self) -> B256 {
        let Self { purpose: Purpose { domain, own_type }, agent, nonce, timestamp } = self;
        let domain = SigningDomain::new(domain.clone());
        match own_type {
            None => domain.digest(*agent, *nonce, *timestamp),
            Some(own_type) => domain.own_digest(own_type, *agent, *nonce, *timestamp),
        }
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
pub(super) fn read_domain(typed: &Value, own_type: Option<KeyOperation>) -> Option<Eip712Domain> {
    let domain = typed.get("domain")?;
    let text = |name: &str| domain.get(name)?.as_str();
    let domain = Eip712Domain {
        name: text("name")?.to_owned(),
        version: text("version")?.to_owned(),
        chain_id: domain.get("chainId")?.as_u64()?,
        verifying_contract: text("verifyingContract")?.parse().ok()?,
    };
    let ours = typed_data(&domain, own_type);
    ["types", "primaryType"].iter().all(|name| typed.get(name) == ours.get(name)).then_some(domain)
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, U256};
    use alloy_dyn_abi::TypedData;
    use serde_json::json;

    use super::{Purpose, Request};
    use crate::domain::{AgentId, Eip712Domain, KeyOperation, Nonce, OwnType, UnixSeconds};

    fn request(own_type: Option<KeyOperation>) -> Request {
        let domain = Eip712Domain {
            name: "Elsewhere".to_owned(),
            version: "2".to_owned(),
            chain_id: u64::MAX,
            verifying_contract: Address::repeat_byte(0xab),
        };
        let own_type = own_type.map(|operation| OwnType { operation, service: "Hafen \"東\"".into() });
        Request {
            purpose: Purpose { domain, own_type },
            agent: AgentId::new(U256::MAX),
            nonce: Nonce::new(U256::MAX - U256::ONE),
            timestamp: UnixSeconds(1_700_000_000),
        }
    }

    #[test]
    fn typed_data_is_what_other_signers_hash_to_the_same_digest_and_reads_as_it_was() {
        for own_type in KeyOperation::ALL.map(Some).into_iter().chain([None]) {
            let request = request(own_type);
            let text = request.typed_data().to_string();
            let theirs: TypedData = serde_json::from_str(&text).unwrap();
            assert_eq!(theirs.eip712_signing_hash().unwrap(), request.digest());
            assert_eq!(Request::read(&serde_json::from_str(&text).unwrap()), Some(request));
        }
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
            let mut typed = request(None).typed_data();
            *typed.pointer_mut(pointer).unwrap() = value;
            assert_eq!(Request::read(&typed), None, "{pointer}");
        }
        for (pointer, value) in [
            ("/primaryType", json!("Verification")),
            ("/primaryType", json!("RevokeKey")),
            ("/types/RotateKey/0/type", json!("bytes")),
            ("/types/RotateKey/0/name", json!("agentId")),
            ("/message/service", json!(null)),
        ] {
            let mut typed = request(Some(KeyOperation::Rotate)).typed_data();
            *typed.pointer_mut(pointer).unwrap() = value;
            assert_eq!(Request::read(&typed), None, "{pointer}");
        }
    }
}
