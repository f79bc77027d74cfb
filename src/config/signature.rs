//! `[signature]`: what owners sign and how long a signature is good for.

use std::time::Duration;

use humantime::format_duration;

use crate::config::console::{NAME_CHARS_MAX, short};
use crate::config::{chain::ChainSettings, keys::KeySettings, reader::Reader, written::Bounds};
use crate::domain::{Freshness, SKEW_SECS, SignatureFormat, VALIDITY_SECS_MIN};

/// The name in the contract. Every service that keeps it accepts the others' signatures.
const DEFAULT_NAME: &str = "Service Verification";

settings! {
    /// What owners sign and how long it is good for.
    SignatureSettings(reader) {
        /// The EIP-712 domain that agents' owners sign for: name and version, not empty, and chain id, from 1. Its contract is
        /// chain.contracts.identity.
        domain_name: String = reader.text("signature.domain_name", DEFAULT_NAME, not_empty),
        /// The version of that domain.
        domain_version: String = reader.text("signature.domain_version", "1", not_empty),
        /// The chain id of that domain, from 1.
        chain_id: u64 = reader.integer("signature.chain_id", 8004, &(1..=i64::MAX)),
        /// How owners sign for a key: "documented", as for a verification, or "own_types", with a type for each of generate, rotate and
        /// revoke that names this service. Then a signature for another service, or for a verification, changes no key here.
        /// Clients older than this setting can't change keys then.
        has_own_types: bool = reader.word(
            "signature.key_operations",
            "documented",
            &[("documented", false), ("own_types", true)],
        ),
        /// The name of this service in these types, 1 to 100 characters in one line, which wallets show. Empty: keys.public_url,
        /// which clients compare with the address that they call; they have to be told any other name.
        service_name: Option<String> = reader.text("signature.service_name", "", |text| match text {
            "" => Ok(None),
            _ => short(text, NAME_CHARS_MAX).map(Some),
        }),
        /// true: contracts that own agents are asked, by ERC-1271, if they accept a signature; signatures may have up to 4096 bytes
        /// then. It costs least at nodes that offer eth_call without "to". false: only a key's 65 bytes are a signature.
        format: SignatureFormat = reader.boolean("signature.contracts", false).map(|asks_contracts| {
            if asks_contracts { SignatureFormat::Contracts } else { SignatureFormat::Keys }
        }),
        /// true: the agent's own wallet, where its registry names one, may sign as the owner does: requests, changes of keys, reads of
        /// the profile. Only for registries that have wallets.
        agent_wallet: bool = reader.boolean("signature.agent_wallet", false),
        /// How old or how far ahead a timestamp may be.
        freshness: Freshness = freshness(reader),
        /// How far the timestamp of a change of a key may lie behind that a contract signs as a type of its own, at most 24h: several owners
        /// of a Safe sign one after the other. Counts where it is longer than max_age.
        contract_max_age: Duration = reader.duration("signature.contract_max_age", "0s", ["0s", "24h"]),
        /// For how long a used nonce is remembered; at least the longer of both ages and max_ahead together, at most 366 days. Longer
        /// costs disk or memory of Redis, and protects nothing more.
        nonce_retention: Duration = reader.duration("signature.nonce_retention", "15m", ["0s", "366days"]),
    } then {
        let window = freshness.zip(contract_max_age).map(|(freshness, contracts)| {
            let max_age_secs = freshness.max_age_secs.max(contracts.as_secs());
            Duration::from_secs(Freshness { max_age_secs, ..freshness }.span_secs())
        });
        if let Some((retention, window)) = nonce_retention.zip(window).filter(|(kept, window)| kept < window) {
            let is_contracts = contract_max_age > freshness.map(|freshness| Duration::from_secs(freshness.max_age_secs));
            let max_age = if is_contracts { "contract_max_age" } else { "max_age" };
            let phrase = format!(
                "nonce_retention is {}, shorter than {max_age} and max_ahead together; write at least {}",
                format_duration(retention),
                format_duration(window),
            );
            let max_age = if is_contracts { "signature.contract_max_age" } else { "signature.max_age" };
            reader.report(&["signature.nonce_retention", max_age, "signature.max_ahead"], phrase);
        }
        let has_none = has_own_types.zip(format).is_some_and(|(own, format)| !own || !format.has_contracts());
        if contract_max_age.is_some_and(|age| !age.is_zero()) && has_none {
            let phrase = "is for changes of keys that contracts sign as types of their own; signature.contracts = true and \
                          signature.key_operations = \"own_types\" have them";
            reader.warn(&["signature.contract_max_age"], phrase);
        }
    }
}

impl SignatureSettings {
    /// True if a nonce may be forgotten before a request is over that is signed for as short as any.
    pub(super) fn forgets_early(&self) -> bool {
        self.nonce_retention.as_secs() < self.freshness.max_ahead_secs + SKEW_SECS + VALIDITY_SECS_MIN
    }

    /// Warns where signatures for other services are good here too, and refuses wallets where agents have none.
    pub(super) fn check_chain(&self, reader: &mut Reader, chain: &ChainSettings) {
        if self.domain_name == DEFAULT_NAME && !chain.development {
            let phrase = "is every service's default: a signature that one of them receives and does not spend is good at \
                          all that trust the same registry; write a name of this service's own";
            reader.warn(&["signature.domain_name"], phrase);
        }
        if self.agent_wallet && !chain.reading.registries.has_wallets() {
            let phrase = "is true, and agents of these registries have no wallets; leave it out";
            reader.report(&["signature.agent_wallet"], phrase);
        }
    }

    /// Types of their own name the service, by its name or public URL.
    pub(super) fn check_service(&self, reader: &mut Reader, keys: &KeySettings) {
        let paths = ["signature.service_name", "signature.key_operations"];
        if self.has_own_types && self.service_name.is_none() && keys.public_url.is_none() {
            let phrase = "is empty, and so is keys.public_url; signature.key_operations = \"own_types\" needs a name of this \
                          service's own";
            reader.report(&paths, phrase);
        } else if !self.has_own_types && self.service_name.is_some() {
            reader.warn(&paths, "is not signed; signature.key_operations = \"own_types\" has it signed");
        }
    }
}

fn freshness(reader: &mut Reader) -> Option<Freshness> {
    read_all!(reader: Freshness {
        /// How far a signature's timestamp may lie behind; whole seconds, 1s to 24h.
        max_age_secs: whole_seconds(reader, "signature.max_age", "300s", ["1s", "24h"]),
        /// How far a signature's timestamp may lie ahead, for clocks that differ; whole seconds, 0s to 1h.
        max_ahead_secs: whole_seconds(reader, "signature.max_ahead", "60s", ["0s", "1h"]),
    })
}

fn not_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("is empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// Timestamps are whole seconds, and so are their distances.
fn whole_seconds(reader: &mut Reader, path: &'static str, default: &str, bounds: Bounds) -> Option<u64> {
    let duration = reader.duration(path, default, bounds)?;
    let whole = match duration.subsec_nanos() {
        0 => Ok(duration.as_secs()),
        _ => Err(format!("is {}; write whole seconds", format_duration(duration))),
    };
    reader.check(path, whole)
}
