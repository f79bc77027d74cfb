//! The domain of signatures, and the signed body that the endpoints take.
//!
//! The service says for which domain it takes signatures. Given values win over it: an owner who knows the registry
//! does not sign for another because a service says so.

use std::path::PathBuf;

use alloy::primitives::{Address, U256, hex};
use alloy::signers::SignerSync;
use reqwest::Method;
use serde_json::{Value, json};

use crate::app::signing_domain;
use crate::app::source::Source;
use crate::cli::check::load;
use crate::cli::client::Service;
use crate::cli::output::Output;
use crate::cli::owner_key::OwnerKey;
use crate::cli::{Failure, complain};
use crate::domain::agent_id::AgentId;
use crate::domain::eip712::{Eip712Domain, SigningDomain};
use crate::domain::freshness::UnixSeconds;
use crate::domain::nonce::Nonce;
use crate::os::Os;
use crate::ports::clock::{Clock, Entropy};
use crate::wire::answers::signing_types;

/// An owner's key, and the domain of its signatures.
#[derive(clap::Args)]
pub(super) struct Signing {
    #[command(flatten)]
    pub(super) service: Service,
    #[command(flatten)]
    owner_key: OwnerKey,
    /// The identity registry's address. Without --url the service is not asked for the rest of the domain.
    #[arg(long, value_name = "ADDRESS")]
    registry: Option<Address>,
    /// The EIP-712 domain's chain id [default: as the service says].
    #[arg(long, value_name = "N")]
    chain_id: Option<u64>,
    /// The EIP-712 domain's name [default: as the service says].
    #[arg(long, value_name = "NAME")]
    domain_name: Option<String>,
    /// The EIP-712 domain's version [default: as the service says].
    #[arg(long, value_name = "VERSION")]
    domain_version: Option<String>,
    /// The service's configuration file, for its domain. Without --url the service is not asked for it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The nonce [default: a random one].
    #[arg(long, value_name = "N", value_parser = Nonce::parse)]
    nonce: Option<Nonce>,
    /// The timestamp in seconds since the Unix epoch [default: now].
    #[arg(long, value_name = "SECONDS")]
    timestamp: Option<u64>,
}

impl Signing {
    /// The fields `agentId`, `signature`, `nonce` and `timestamp` of a request for this agent.
    pub(super) fn body(&self, agent: AgentId) -> Result<Value, Failure> {
        let os = Os::new();
        let signer = self.owner_key.signer()?;
        let domain = SigningDomain::new(self.domain()?);
        let random = Nonce::new(U256::from_be_bytes(os.key_bytes()?));
        let nonce = self.nonce.unwrap_or(random);
        let timestamp = self.timestamp.unwrap_or_else(|| os.unix_seconds());
        let digest = domain.digest(agent, nonce, UnixSeconds(timestamp));
        let signature = signer.sign_hash_sync(&digest)?;
        Ok(json!({
            "agentId": agent.to_string(),
            "signature": hex::encode_prefixed(signature.as_bytes()),
            "nonce": nonce.to_string(),
            "timestamp": timestamp,
        }))
    }

    /// The given values, and for the rest those of the file, of the service, or the usual ones.
    fn domain(&self) -> Result<Eip712Domain, Failure> {
        let is_asked = self.service.url.is_some() || (self.registry.is_none() && self.config.is_none());
        let reported = is_asked.then(|| self.reported()).transpose()?;
        let base = match (&self.config, &reported) {
            (Some(config), _) => signing_domain(&load(&Source::at(config))?.0.settings),
            (None, Some(reported)) => reported.clone(),
            (None, None) => usual_domain(),
        };
        let domain = Eip712Domain {
            name: self.domain_name.clone().unwrap_or(base.name),
            version: self.domain_version.clone().unwrap_or(base.version),
            chain_id: self.chain_id.unwrap_or(base.chain_id),
            verifying_contract: self.registry.unwrap_or(base.verifying_contract),
        };
        if let Some(reported) = reported.filter(|reported| *reported != domain) {
            let service = self.service.base();
            complain(format_args!(
                "signing for the domain of {domain}, as given, but {service} expects {reported}"
            ));
        }
        Ok(domain)
    }

    /// The domain that the service names.
    fn reported(&self) -> Result<Eip712Domain, Failure> {
        let answer = self.service.ask(Output::Text, Method::GET, "/.well-known/tiergate", None);
        let domain = answer.and_then(|answer| {
            let problem = "its types are not those that this program signs";
            read_domain(&answer).ok_or_else(|| Failure::new(problem))
        });
        domain.map_err(|Failure { message, .. }| {
            let service = self.service.base();
            let ways = "name the service with --url, or its registry with --registry alone";
            Failure::new(format!("{service} does not say what to sign: {message}; {ways}"))
        })
    }
}

fn read_domain(answer: &Value) -> Option<Eip712Domain> {
    let types = signing_types();
    let is_ours = ["types", "primaryType"].iter().all(|name| answer.get(name) == types.get(name));
    let domain = answer.get("domain").filter(|_| is_ours)?;
    let text = |name: &str| domain.get(name)?.as_str();
    Some(Eip712Domain {
        name: text("name")?.to_owned(),
        version: text("version")?.to_owned(),
        chain_id: domain.get("chainId")?.as_u64()?,
        verifying_contract: text("verifyingContract")?.parse().ok()?,
    })
}

/// The defaults of `[signature]`, over a registry that is given.
fn usual_domain() -> Eip712Domain {
    let (name, version) = ("Service Verification".to_owned(), "1".to_owned());
    Eip712Domain { name, version, chain_id: 8004, verifying_contract: Address::ZERO }
}
