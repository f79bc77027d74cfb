//! `[signature]`: what owners sign and how long a signature is good for. `[keys]`: what API keys look like and how often they may
//! be managed. `[console]`: the owner's page, for owners who keep their key in a wallet.

use std::time::Duration;

use humantime::format_duration;

use crate::config::written::{Bounds, Shown, open_url, plain, valid};
use crate::config::{chain::ChainSettings, reader::Reader};
use crate::domain::{
    ApiKeyFormat, ConsoleSettings, Freshness, KEYS_PER_AGENT_MAX, Quota, RpcUrl, SKEW_SECS, SignatureFormat,
    VALIDITY_SECS_MIN,
};

/// The longest prefix of API keys, in characters.
const PREFIX_CHARS_MAX: usize = 64;

/// The longest name that pages and wallets show, in characters.
const NAME_CHARS_MAX: usize = 100;

/// The longest symbol of a currency that wallets take, in characters.
const SYMBOL_CHARS_MAX: usize = 6;

/// The name in the contract. Every service that keeps it accepts the others' signatures.
const DEFAULT_NAME: &str = "Service Verification";

settings! {
    /// The typed data that owners sign, and how long a signature is good for.
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
        freshness: Freshness = read_all!(reader: Freshness {
            /// How far a signature's timestamp may lie behind; whole seconds, 1s to 24h.
            max_age_secs: whole_seconds(reader, "signature.max_age", "300s", ["1s", "24h"]),
            /// How far a signature's timestamp may lie ahead, for clocks that differ; whole seconds, 0s to 1h.
            max_ahead_secs: whole_seconds(reader, "signature.max_ahead", "60s", ["0s", "1h"]),
        }),
        /// How far the timestamp of a change of a key may lie behind that a contract signs as a type of its own, at most 24h: several owners
        /// of a Safe sign one after the other. Counts where it is longer than max_age.
        contract_max_age: Duration = reader.duration("signature.contract_max_age", "0s", ["0s", "24h"]),
        /// For how long a used nonce is remembered; at least the longer of both ages and max_ahead together, at most 366 days. Longer
        /// costs disk or memory of Redis, and protects nothing more.
        nonce_retention: Duration = reader.duration("signature.nonce_retention", "15m", ["0s", "366days"]),
    } then {
        let window = freshness.zip(contract_max_age).map(|(freshness, contracts)| {
            let max_age_secs = freshness.max_age_secs.max(contracts.as_secs());
            Duration::from_secs(max_age_secs.saturating_add(freshness.max_ahead_secs))
        });
        if let Some((retention, window)) = nonce_retention.zip(window).filter(|(kept, window)| kept < window) {
            let is_contracts = contract_max_age > freshness.map(|freshness| Duration::from_secs(freshness.max_age_secs));
            let max_age = if is_contracts { "signature.contract_max_age" } else { "signature.max_age" };
            let phrase = format!(
                "nonce_retention is {}, shorter than {} and max_ahead together; write at least {}",
                format_duration(retention),
                max_age.trim_start_matches("signature."),
                format_duration(window),
            );
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

settings! {
    /// API keys and their management.
    KeySettings(reader) {
        /// The beginning of every API key: 1 to 64 characters of A-Z, a-z, 0-9, _ and -. Keys with another prefix are refused, so
        /// a change makes all keys invalid that were handed out before.
        format: ApiKeyFormat = reader.text("keys.prefix", "svc_live_v1_", |text| {
            plain(text, &(1..=PREFIX_CHARS_MAX), &['_', '-']).map(ApiKeyFormat::new)
        }),
        /// Optional. true: a key is refused once the account that signed for it may no longer sign for the agent. So is a key that a
        /// release made which did not keep that account, until it is replaced. false: a key outlives the sale of its agent. Without
        /// it false, but true for registries that have wallets.
        /// Example: false
        end_with_signer: Option<bool> = Some(reader.boolean("keys.end_with_signer", None)),
        /// How many keys an agent may have, 1 to 32. With 1 a second one is refused, and a rotation replaces it. Owners tell several by name.
        per_agent_max: u32 = reader.integer("keys.per_agent_max", 1, &(1..=i64::from(KEYS_PER_AGENT_MAX))),
        /// The longest life that an owner may ask for a key, at most 3660 days. Keys without an end stay allowed.
        expires_max: Duration = reader.duration("keys.expires_max", "365days", ["1s", "3660days"]),
        /// How often the owner may manage the keys of one agent from one client IP in any 60 minutes, 1 to 1000000. Revocations pass
        /// beyond that, as many again; requests that are not the owner's count apart.
        requests_per_hour: Quota =
            reader.integer("keys.requests_per_hour", 10, &(1..=1_000_000)).map(Quota::per_hour),
        /// Where owners reach the endpoints for keys from outside, as an http(s) URL: /.well-known/tiergate tells it, and where the
        /// owner's page is. Empty: it tells neither.
        public_url: Option<RpcUrl> = reader.text("keys.public_url", "", url_without_query),
    }
}

/// Reads the owner's page.
pub(super) fn console(reader: &mut Reader) -> Option<ConsoleSettings> {
    reader.mask(Shown::Host, &["console.rpc_url", "console.development_rpc_url"]);
    read_all!(reader: ConsoleSettings {
        /// true: the API's listener serves the owner's page at /console. Owners make and revoke keys there with their wallet.
        /// Everything in this section is shown to everybody, so put no secret here.
        enabled: reader.boolean("console.enabled", false),
        /// The page's title, 1 to 100 characters.
        title: reader.text("console.title", "Tiergate", |text| short(text, NAME_CHARS_MAX)),
        /// An http(s) URL of JSON-RPC for the chain of signature.chain_id, which wallets may add; without it the page lets owners
        /// sign elsewhere. It is public, also a provider's key in it: take one that is meant for browsers. Wallets want https, but
        /// for localhost.
        rpc_url: reader.text("console.rpc_url", "", url),
        /// That chain's name, up to 100 characters; required with rpc_url.
        chain_name: reader.text("console.chain_name", "", |text| match text {
            "" => Ok(String::new()),
            _ => short(text, NAME_CHARS_MAX),
        }),
        /// The symbol of that chain's currency, 1 to 6 characters.
        currency: reader.text("console.currency", "ETH", |text| short(text, SYMBOL_CHARS_MAX)),
        /// The gateway's address as clients see it, for a first request from the page. Without it the page offers none.
        /// The tenant at this address needs [tenants.cors] with the origin of the API.
        gateway_url: reader.text("console.gateway_url", "", url_without_query),
        /// A path there that takes keys.
        sample_path: reader.text("console.sample_path", "/", |text| {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"#\\\"'".contains(&byte);
            let is_path = text.starts_with('/') && text.bytes().all(is_plain);
            let wanted = "a path of printable ASCII characters that begins with /";
            valid(text, is_path.then(|| text.to_owned()), wanted)
        }),
        /// true: it is an endpoint of MCP. The page asks it for its tools, and shows an assistant's configuration.
        sample_mcp: reader.boolean("console.sample_mcp", false),
        /// true: the page shows an agent's image from the https URL that its registration (ERC-8004) names. Anybody may have written that
        /// URL, and who is behind it learns the address of each owner who looks.
        images: reader.boolean("console.images", false),
        /// For development alone: an http(s) URL of a node whose unlocked accounts sign for everybody. The page offers them as a wallet.
        development_rpc_url: reader.text("console.development_rpc_url", "", url),
    } then {
        if let (Some(Some(_)), Some("")) = (&rpc_url, chain_name.as_deref()) {
            let phrase = "is empty; wallets ask for the name of the chain at console.rpc_url";
            reader.report(&["console.chain_name"], phrase);
        }
    })
}

/// A text in one line.
fn short(text: &str, chars_max: usize) -> Result<String, String> {
    let is_shown = !text.contains(char::is_control) && (1..=chars_max).contains(&text.chars().count());
    let wanted = format_args!("1 to {chars_max} characters in one line");
    valid(text, is_shown.then(|| text.to_owned()), wanted)
}

/// A URL that anybody may know, or none.
fn url(text: &str) -> Result<Option<RpcUrl>, String> {
    match text {
        "" => Ok(None),
        _ => open_url(text, "or nothing").map(Some),
    }
}

fn url_without_query(text: &str) -> Result<Option<RpcUrl>, String> {
    let url = url(text)?;
    match url.as_ref().and_then(|url| url.reveal().query()) {
        None => Ok(url),
        Some(_) => Err("has a query; write the address alone".to_owned()),
    }
}
