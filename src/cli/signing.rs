//! The domain of signatures, and the signed body that the endpoints take.
//!
//! The service says for which domain it takes signatures. Given values win over it: an owner who knows the registry
//! does not sign for another because a service says so.

use std::path::PathBuf;

use alloy::primitives::{Address, U256, hex};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use clap::ArgGroup;
use reqwest::Method;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::app::signing_domain;
use crate::cli::typed_data::{self, Elsewhere, Purpose, Request, Signed, read_domain};
use crate::cli::{
    BAD_CONFIGURATION, Failure, check::load_to_serve, client::Service, complain, keystore::Keystore,
    output::Output, secret,
};
use crate::config::ConfigSource;
use crate::domain::{
    AgentId, Eip712Domain, Freshness, KeyOperation, Nonce, OwnType, SignatureFormat, UnixSeconds,
};
use crate::os::Os;
use crate::ports::{Clock, Entropy};
use crate::wire::{answers::rfc3339, discovery::key_operations};

/// An agent, its owner's key, and the domain of its signatures.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("agent").args(["agent_id", "signed"]).required(true).multiple(true))]
pub(super) struct Signing {
    /// The agent's id. With --signed it is in the file.
    #[arg(long, value_name = "N", value_parser = AgentId::parse)]
    pub(super) agent_id: Option<AgentId>,
    #[command(flatten)]
    pub(super) service: Service,
    #[command(flatten)]
    owner_key: OwnerKey,
    /// The identity registry's address. Without --url the service is not asked for the rest of the domain.
    #[arg(long, help_heading = "Signed data", value_name = "ADDRESS")]
    registry: Option<Address>,
    /// The EIP-712 domain's chain id [default: as the service says].
    #[arg(long, help_heading = "Signed data", value_name = "N")]
    chain_id: Option<u64>,
    /// The EIP-712 domain's name [default: as the service says].
    #[arg(long, help_heading = "Signed data", value_name = "NAME")]
    domain_name: Option<String>,
    /// The EIP-712 domain's version [default: as the service says].
    #[arg(long, help_heading = "Signed data", value_name = "VERSION")]
    domain_version: Option<String>,
    /// The service's name, where changes of keys are signed as types of their own [default: as the service says, if that is
    /// its address].
    #[arg(long, help_heading = "Signed data", value_name = "NAME")]
    service_name: Option<String>,
    /// The service's configuration file, for its domain. Without --url the service is not asked for it.
    #[arg(long, help_heading = "Signed data", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The nonce [default: a random one].
    #[arg(long, help_heading = "Signed data", value_name = "N", value_parser = Nonce::parse)]
    nonce: Option<Nonce>,
    /// The timestamp in seconds since the Unix epoch [default: now].
    #[arg(long, help_heading = "Signed data", value_name = "SECONDS")]
    timestamp: Option<u64>,
    #[command(flatten)]
    elsewhere: Elsewhere,
}

impl Signing {
    /// The fields `agentId`, `signature`, `nonce` and `timestamp` of a request for the agent, to verify it or to change its
    /// key; `None` after the typed data is printed for another to sign.
    pub(super) fn body(&self, to: Output, change: Option<KeyOperation>) -> Result<Option<Value>, Failure> {
        if let Some(signed) = self.elsewhere.signed()? {
            self.check(&signed, to, change)?;
            return Ok(Some(signed.request.body(&signed.signature)));
        }
        let agent = self.agent_id.ok_or_else(|| Failure::unusable("name the agent with --agent-id"))?;
        let os = Os::new();
        let signer = (!self.elsewhere.typed_data).then(|| self.owner_key.signer()).transpose()?;
        let (purpose, window) = self.purpose(to, change)?;
        let random = Nonce::new(U256::from_be_bytes(os.key_bytes()?));
        let nonce = self.nonce.unwrap_or(random);
        let timestamp = UnixSeconds(self.timestamp.unwrap_or_else(|| os.unix_seconds()));
        let request = Request { purpose, agent, nonce, timestamp };
        let Some(signer) = signer else {
            typed_data::print(&request, window)?;
            return Ok(None);
        };
        let signature = signer.sign_hash_sync(&request.digest())?;
        Ok(Some(request.body(&hex::encode_prefixed(signature.as_bytes()))))
    }

    /// The agent, the account that signs for it, and its chain. The service is asked for the chain unless it is given.
    pub(super) fn account(&self) -> Result<(AgentId, PrivateKeySigner, u64), Failure> {
        let agent = self.agent_id.ok_or_else(|| Failure::unusable("name the agent with --agent-id"))?;
        let signer = self.owner_key.signer()?;
        let chain_id = match self.chain_id {
            Some(chain_id) => chain_id,
            None => self.purpose(Output::Text, None)?.0.domain.chain_id,
        };
        Ok((agent, signer, chain_id))
    }

    /// Compares what was signed elsewhere with the arguments, the service's domain and the clock.
    fn check(&self, signed: &Signed, output: Output, change: Option<KeyOperation>) -> Result<(), Failure> {
        let Signed { file, request, signature } = signed;
        for (flag, given, signed) in [
            ("--agent-id", self.agent_id.map(|agent| agent.to_string()), request.agent.to_string()),
            ("--nonce", self.nonce.map(|nonce| nonce.to_string()), request.nonce.to_string()),
            ("--timestamp", self.timestamp.map(|at| at.to_string()), request.timestamp.0.to_string()),
        ] {
            if let Some(given) = given.filter(|given| *given != signed) {
                return Err(Failure::new(format!("{flag} is {given}, but {file} is for {signed}")));
            }
        }
        let (expected, window) = self.purpose(output, change)?;
        if expected != request.purpose {
            let domain = &request.purpose;
            let advice = "name its service with --url, or give that domain's flags again";
            return Err(Failure::new(format!(
                "{file} is signed for the domain of {domain}, but expected is {expected}: {advice}"
            )));
        }
        let now = UnixSeconds(Os::new().unix_seconds());
        if window.is_some_and(|window| !window.accepts(request.timestamp, now)) {
            let (at, service) = (rfc3339(request.timestamp), self.service.base());
            let advice = "make a new one with --typed-data and sign that";
            return Err(Failure::new(format!("{file} is of {at}, too far from now for {service}: {advice}")));
        }
        let signature = SignatureFormat::Contracts.parse(signature).ok();
        let signer = signature.and_then(|signature| signature.recover(&request.digest()));
        if let Some(signer) = signer {
            complain(format_args!(
                "the signature recovers to the account {signer}, which says nothing if the owner is a contract"
            ));
        }
        Ok(())
    }

    /// The given values, and for the rest those of the file, of the service, or the usual ones; and for how long the
    /// service takes a timestamp, if it is asked.
    fn purpose(
        &self,
        output: Output,
        change: Option<KeyOperation>,
    ) -> Result<(Purpose, Option<Freshness>), Failure> {
        let is_asked = self.service.url.is_some() || (self.registry.is_none() && self.config.is_none());
        let (reported, window) = is_asked.then(|| self.reported(output)).transpose()?.unzip();
        let (base, name) = match (&self.config, &reported) {
            (Some(config), _) => {
                let loaded = load_to_serve(&ConfigSource::at(config));
                let settings = loaded.map_err(|why| why.with_code(BAD_CONFIGURATION))?.0.settings;
                (signing_domain(&settings), settings.key_service().map(str::to_owned))
            }
            (None, Some(reported)) => reported.clone(),
            // The defaults of `[signature]`, over a registry that is given.
            (None, None) => {
                let (name, version) = ("Service Verification".to_owned(), "1".to_owned());
                (Eip712Domain { name, version, chain_id: 8004, verifying_contract: Address::ZERO }, None)
            }
        };
        let is_known = change.is_none() || self.service_name.is_some() || self.config.is_some();
        if let Some(name) = name.as_ref().filter(|name| !is_known && *name != self.service.base()) {
            let service = self.service.base();
            return Err(Failure::new(format!(
                "{service} calls itself {name:?}: if that is the service whose keys you mean, give its name with --service-name"
            )));
        }
        let purpose = |domain, name: Option<String>| {
            let own_type = change.zip(name);
            let own_type = own_type.map(|(operation, name)| OwnType { operation, service: name.into() });
            Purpose { domain, own_type }
        };
        let domain = Eip712Domain {
            name: self.domain_name.clone().unwrap_or(base.name),
            version: self.domain_version.clone().unwrap_or(base.version),
            chain_id: self.chain_id.unwrap_or(base.chain_id),
            verifying_contract: self.registry.unwrap_or(base.verifying_contract),
        };
        let ours = purpose(domain, self.service_name.clone().or(name));
        let reported = reported.map(|(domain, name)| purpose(domain, name));
        if let Some(reported) = reported.filter(|reported| *reported != ours) {
            let service = self.service.base();
            complain(format_args!(
                "signing for the domain of {ours}, as given, but {service} expects {reported}"
            ));
        }
        Ok((ours, window))
    }

    /// The domain that the service names, its own name where changes of keys have types of their own, and its window of
    /// timestamps.
    fn reported(&self, output: Output) -> Result<((Eip712Domain, Option<String>), Freshness), Failure> {
        let answer = self.service.ask(output, Method::GET, "/.well-known/tiergate", None);
        let reported = answer.and_then(|answer| {
            let problem = "its types are not those that this program signs";
            let secs = |name: &str| answer.get(name)?.as_u64();
            let window = secs("timestampMaxAge").zip(secs("timestampMaxAhead"));
            let (max_age_secs, max_ahead_secs) = window.ok_or(problem)?;
            let domain = read_domain(&answer, None).ok_or(problem)?;
            let own_types = answer.get("keyOperations").filter(|types| !types.is_null());
            let name = own_types.and_then(|types| types.get("service")?.as_str());
            if own_types != name.map(|name| key_operations(&domain, name)).as_ref() {
                return Err(problem.into());
            }
            let name = name.map(str::to_owned);
            Ok(((domain, name), Freshness { max_age_secs, max_ahead_secs }))
        });
        reported.map_err(|Failure { message, .. }| {
            let service = self.service.base();
            let ways = "name the service with --url, or its registry with --registry alone";
            Failure::new(format!("{service} does not say what to sign: {message}; {ways}"))
        })
    }
}

/// The variable with the key, read when no file is named.
const KEY_VARIABLE: &str = "TIERGATE_OWNER_KEY";

/// The variable with a keystore's password, read when no file is named.
const PASSWORD_VARIABLE: &str = "TIERGATE_KEYSTORE_PASSWORD";

/// The flags for the owner's private key.
#[derive(clap::Args)]
#[command(next_help_heading = "Owner's key")]
pub(super) struct OwnerKey {
    /// File with the owner's private key: in hex, or an encrypted keystore (Web3 secret storage); - is standard
    /// input. Without it the key is read from TIERGATE_OWNER_KEY.
    #[arg(long, value_name = "FILE")]
    owner_key_file: Option<PathBuf>,
    /// File with the keystore's password; - is standard input. Without it the password is read from TIERGATE_KEYSTORE_PASSWORD, or asked for at
    /// the terminal.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl OwnerKey {
    pub(super) fn signer(&self) -> Result<PrivateKeySigner, Failure> {
        let text = secret::read(self.owner_key_file.as_deref(), "owner-key", KEY_VARIABLE)?;
        let text = text.trim();
        let place = self.owner_key_file.as_deref().map_or(KEY_VARIABLE.into(), secret::place);
        let unusable = |problem: &str| Failure::new(format!("{place}: {problem}"));
        if text.starts_with('{') {
            let keystore = Keystore::parse(text).map_err(unusable)?;
            return keystore.unlock(&self.password(&place)?).map_err(unusable);
        }
        text.parse().map_err(|_| unusable("holds neither a private key of 64 hex characters nor a keystore"))
    }

    /// The password, without a line end behind it.
    fn password(&self, place: &str) -> Result<Zeroizing<String>, Failure> {
        match secret::read(self.password_file.as_deref(), "password", PASSWORD_VARIABLE) {
            Err(nowhere) if self.password_file.is_none() => {
                let asked = rpassword::prompt_password(format!("Password of {place}: "));
                asked.map(Zeroizing::new).map_err(|_| nowhere)
            }
            read => Ok(Zeroizing::new(read?.trim_end_matches(['\r', '\n']).to_owned())),
        }
    }
}
