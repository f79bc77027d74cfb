//! An agent's request as typed data (EIP-712): what wallets take, and the body that the endpoints take once it is signed.
//!
//! Owners whose key is in a wallet, a Ledger or a Safe sign in two steps: one run prints the typed data, the next reads it again,
//! with its signature. An unused signature is a credential, so it is no argument.

use std::{fmt, path::PathBuf};

use alloy::primitives::B256;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::cli::output::{quoted, with};
use crate::cli::{Failure, complain, say, secret};
use crate::domain::{
    AgentId, Eip712Domain, Freshness, KeyOperation, Nonce, OwnType, SignatureFormat, SigningDomain,
    UnixSeconds,
};
use crate::files::{self, SECRET_BYTES_MAX};
use crate::wire::answers::{rfc3339, typed_data};

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

/// The flags of both steps.
#[derive(clap::Args)]
#[command(next_help_heading = "Signing elsewhere, in two steps")]
pub(super) struct Elsewhere {
    /// Print the typed data (EIP-712) for a wallet, a Ledger or a Safe to sign, and send nothing.
    #[arg(long, conflicts_with_all = ["owner_key_file", "password_file"])]
    pub(super) typed_data: bool,
    /// File with the typed data that was signed elsewhere.
    #[arg(long, value_name = "FILE", requires = "signature", conflicts_with_all = ["typed_data", "owner_key_file", "password_file"])]
    signed: Option<PathBuf>,
    /// File with the signature of it; - reads it from standard input.
    #[arg(long, value_name = "FILE", requires = "signed")]
    signature: Option<PathBuf>,
}

/// The typed data of the first step, with its signature.
pub(super) struct Signed {
    /// The file of the typed data, for people.
    pub(super) file: String,
    pub(super) request: Request,
    pub(super) signature: Zeroizing<String>,
}

impl Elsewhere {
    /// Reads both files in the second step.
    pub(super) fn signed(&self) -> Result<Option<Signed>, Failure> {
        let Some((file, signature)) = self.signed.as_ref().zip(self.signature.as_ref()) else {
            return Ok(None);
        };
        let (read, file) = (files::text_or_pipe(file, SECRET_BYTES_MAX), file.display().to_string());
        let text = read.map_err(|why| format!("{file}: {why}"))?;
        let typed = serde_json::from_str(&text).map_err(|why| format!("{file} is not JSON: {why}"))?;
        let request = Request::read(&typed).ok_or_else(|| {
            Failure::new(format!("{file} is not what --typed-data prints: its types or fields differ"))
        })?;
        let (text, place) = (secret::text(signature, "Paste the signature: ")?, secret::place(signature));
        let signature = Zeroizing::new(text.trim().to_owned());
        if let Err(problem) = SignatureFormat::Contracts.parse(&signature) {
            return Err(Failure::new(format!("{place} does not hold a signature: it {problem}")));
        }
        Ok(Some(Signed { file, request, signature }))
    }
}

/// Prints the typed data, and on standard error what it means and the command that follows.
pub(super) fn print(request: &Request, window: Option<Freshness>) -> Result<(), Failure> {
    say(format_args!("{:#}", request.typed_data()))?;
    let Request { purpose, agent, nonce, timestamp } = request;
    let aim = match &purpose.own_type {
        None => "verify the agent, or to generate, rotate or revoke its key",
        Some(own_type) => &format!("{} its key", own_type.operation.name()),
    };
    let within = window.map(|window| format!(" within {} s", window.max_age_secs)).unwrap_or_default();
    // The command line of this run, with the arguments of the second step. A pipe brings the signature: no file holds it.
    let next = std::env::args_os().map(|argument| match &*argument.to_string_lossy() {
        "--typed-data" => "--signed request.json --signature -".to_owned(),
        other => quoted(other),
    });
    let next: Vec<String> = next.collect();
    complain(format_args!(
        "\
to be signed by the owner of agent {agent}, for one request: to {aim}
  domain     {purpose}
  nonce      {nonce}
  timestamp  {} ({})
Keep it in request.json, and send it with its signature{within}. Keep the signature secret until then. With a Ledger:
  cast wallet sign --ledger --data --from-file request.json | {}",
        timestamp.0,
        rfc3339(*timestamp),
        next.join(" ")
    ));
    Ok(())
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
