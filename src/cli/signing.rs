//! What a signature is bound to, and the signed body that the endpoints take.

use std::path::{Path, PathBuf};

use alloy::primitives::{Address, U256, hex};
use alloy::signers::SignerSync;
use serde_json::{Map, Value, json};

use crate::app::signing_domain;
use crate::app::source::Source;
use crate::cli::check::load;
#[cfg(feature = "dev-chain")]
use crate::cli::complain;
use crate::cli::owner_key::OwnerKey;
use crate::cli::{BAD_CONFIGURATION, Failure};
use crate::domain::agent_id::AgentId;
use crate::domain::eip712::SigningDomain;
use crate::domain::freshness::UnixSeconds;
use crate::domain::nonce::Nonce;
use crate::os::Os;
use crate::ports::clock::{Clock, Entropy};

/// Read when neither `--config` nor `--registry` is given, if it exists.
const USUAL_CONFIG: &str = "tiergate.toml";

/// Who signs, bound to which registry.
#[derive(clap::Args)]
pub(super) struct Signing {
    #[command(flatten)]
    owner_key: OwnerKey,
    /// The service's configuration file, for what signatures are bound to [default: tiergate.toml if it exists,
    /// otherwise the development chain].
    #[arg(long, value_name = "FILE", env = "TIERGATE_CONFIG")]
    config: Option<PathBuf>,
    /// The identity registry's address, for a service with the default domain.
    #[arg(long, value_name = "ADDRESS")]
    registry: Option<Address>,
    /// The nonce [default: a random one].
    #[arg(long, value_name = "N")]
    nonce: Option<String>,
    /// The timestamp in seconds since the Unix epoch [default: now].
    #[arg(long, value_name = "SECONDS")]
    timestamp: Option<u64>,
}

impl Signing {
    /// The fields `agentId`, `signature`, `nonce` and `timestamp` of a request for this agent.
    pub(super) fn body(&self, agent_id: &str) -> Result<Map<String, Value>, Failure> {
        let os = Os::new();
        let agent = AgentId::parse(agent_id).map_err(|why| argument("--agent-id", why))?;
        let nonce = match &self.nonce {
            Some(text) => Nonce::parse(text).map_err(|why| argument("--nonce", why))?,
            None => Nonce::new(U256::from_be_bytes(os.key_bytes().map_err(Failure::new)?)),
        };
        let timestamp = self.timestamp.unwrap_or_else(|| os.unix_seconds());
        let digest = self.domain()?.digest(agent, nonce, UnixSeconds(timestamp));
        let signature = self.owner_key.signer()?.sign_hash_sync(&digest).map_err(Failure::new)?;
        let mut body = Map::new();
        body.insert("agentId".to_owned(), json!(agent.to_string()));
        body.insert("signature".to_owned(), json!(hex::encode_prefixed(signature.as_bytes())));
        body.insert("nonce".to_owned(), json!(nonce.to_string()));
        body.insert("timestamp".to_owned(), json!(timestamp));
        Ok(body)
    }

    fn domain(&self) -> Result<SigningDomain, Failure> {
        if let Some(registry) = self.registry {
            return Ok(default_domain(registry));
        }
        match &self.config {
            Some(config) => Ok(signing_domain(&load(&Source::at(config))?)),
            None if Path::new(USUAL_CONFIG).exists() => {
                Ok(signing_domain(&load(&Source::at(Path::new(USUAL_CONFIG)))?))
            }
            None => development_domain(),
        }
    }
}

fn argument(name: &str, why: impl std::fmt::Display) -> Failure {
    let message = format!("{name} is not a number that an agent or nonce can have: {why}");
    Failure::new(message).with_code(BAD_CONFIGURATION)
}

/// The contract's domain over a registry.
fn default_domain(registry: Address) -> SigningDomain {
    SigningDomain::new("Service Verification", "1", 8004, registry)
}

#[cfg(feature = "dev-chain")]
fn development_domain() -> Result<SigningDomain, Failure> {
    complain(format_args!("signing for the development chain; name another with --config or --registry"));
    Ok(default_domain(crate::dev::samples::IDENTITY_ADDRESS))
}

#[cfg(not(feature = "dev-chain"))]
fn development_domain() -> Result<SigningDomain, Failure> {
    Err(Failure::new(
        "say what to sign for: --config with the service's file, or --registry with the address",
    ))
}
