//! `[chain]` and `[chain.contracts]`: how the chain is reached and where the registries stand. `[[chain.rpc_headers]]`: what goes
//! with every call to the nodes of one origin, such as a provider's key, which no problem shows.

use std::num::NonZeroU32;

use alloy::primitives::Address;
use http::HeaderName;

use crate::config::written::{Shown, quoted, valid, valid_url};
use crate::config::{notes::Content, reader::Reader};
use crate::domain::{
    Lifetimes, NotAHeaderValue, PoolSettings, ReaderSettings, Registries, RegistrySet, RpcHeader, RpcUrl,
    Secret, SecretSource, chain::facts, rpc_url::header_value,
};

/// How many RPC URLs there may be.
const RPC_URLS_MAX: usize = 16;

/// How many headers there may be.
const HEADERS_MAX: usize = 64;

/// The longest name of a header, in bytes.
const NAME_BYTES_MAX: usize = 64;

settings! {
    /// The chain and its registries.
    ChainSettings(reader) {
        /// The nodes.
        pool: PoolSettings = pool(reader),
        /// true: this is a chain to try things on, as that of "tiergate-dev --only-chain", where everybody knows the owners' keys. A
        /// store that was used with such a chain is not used with false here, nor the other way round.
        development: bool = reader.boolean("chain.development", false),
        /// Headers of every call, by the origin of the node.
        rpc_headers: Vec<RpcHeader<SecretSource>> =
            rpc_headers(reader, pool.as_ref().map(|pool| &*pool.urls)),
        /// The registries.
        reading: ReaderSettings = reading(reader, pool.as_ref().map(|pool| pool.chain_id)),
    }
}

fn pool(reader: &mut Reader) -> Option<PoolSettings> {
    reader.mask(Shown::Host, &["chain.rpc_urls", "chain.http_proxy"]);
    read_all!(reader: PoolSettings {
        /// JSON-RPC endpoints of one chain, 1 to 16, the preferred one first: http:// or https:// (with the authorities that the
        /// system believes), user info and path allowed. User info is sent as basic authentication. Since they often hold a
        /// provider's key, nothing but scheme, host and port of them is ever logged or answered.
        urls: reader.texts("chain.rpc_urls", &["http://127.0.0.1:8545"], &(1..=RPC_URLS_MAX), rpc_url),
        /// Required. The id of the chain that these nodes are on, at least 1; those that are on another one are not used. It may
        /// differ from signature.chain_id, which is only what owners sign.
        /// Example: 8004
        chain_id: {
            let advice = "; write the id of the chain that rpc_urls are on, as eth_chainId says it";
            reader.require("chain.chain_id", advice);
            reader.integer("chain.chain_id", None, &(1..=i64::MAX))
        },
        // So short that a second node can be tried within the time that a read has (`chain::reader`).
        /// For how long one RPC try may take at most; more than 0s, at most 5s. Of several nodes each has its share of a read's 6 s.
        request_timeout: reader.duration("chain.request_timeout", "2s", ["1ns", "5s"]),
        /// Optional. How many calls a second each node gets at most, 1 to 100000; further ones wait in line, behind those that follow
        /// the chain, for which an eighth is kept.
        /// Example: 50
        calls_per_second: {
            let calls = reader.integer("chain.calls_per_second", None, &(1..=100_000));
            Some(calls.and_then(NonZeroU32::new))
        },
        /// Optional. The HTTP proxy through which nodes are reached; user info in it is never logged.
        /// Example: "http://proxy.example:3128"
        proxy: Some(reader.text("chain.http_proxy", None, rpc_url)),
    })
}

fn reading(reader: &mut Reader, chain_id: Option<u64>) -> Option<ReaderSettings> {
    read_all!(reader: ReaderSettings {
        // Long enough for chains whose blocks are far between. None where blocks come only when somebody asks for one.
        /// How far the time of a block that a node answers at may be behind this machine's, 10s to 24h; other answers do not count,
        /// nor those of more than 30 s ahead. It finds out a node, or a chain, that stands still. Write some twenty times what
        /// usually passes between two blocks; "0s", which judges nothing, where blocks are made on demand.
        max_head_age: reader.duration_or_none("chain.max_head_age", "10m", ["10s", "24h"]),
        /// The most gas that one eth_call may burn, 1000000 to 1000000000. Nodes have limits of their own, often this one. Owners, stakes
        /// and balances are read with 15000000 at most; where a node refuses more than that, or any, so is the rest.
        gas_cap: reader.integer("chain.gas_cap", 50_000_000, &(1_000_000..=1_000_000_000)),
        /// The address of Multicall3. The default is that of the chain, where it is known to be another one than this, which it is on
        /// nearly every chain. Without a contract there, profiles are read in another way.
        multicall: {
            let known = facts(chain_id.unwrap_or_default()).multicall;
            reader.text("chain.multicall", &*known.to_checksum(None), contract)
        },
        lifetimes: read_all!(reader: Lifetimes {
            // So long that a node is not asked without a pause.
            /// How often the chain is asked for new blocks and the registries' logs, at most; at least 50ms, at most 60s. A change shows
            /// within two of these. Between blocks that come at a steady pace, polls are as rare as max_staleness allows. Where no logs
            /// are to be had (eth_getLogs in JSON-RPC batches), it is how long a profile serves.
            poll_interval: reader.duration("chain.poll_interval", "1s", ["50ms", "60s"]),
            /// For how long polls may stay without an answer before cached profiles are not used any more: at least two of
            /// poll_interval, at most 10m. Until polls are answered again, what is read then serves for one poll_interval.
            max_staleness: reader.duration("chain.max_staleness", "5s", ["1ns", "10m"]),
            // Long enough that agents in use cost next to nothing.
            /// After which time a profile in use is read again although no log named it, 1m to 24h: what a registry changes without a log
            /// shows after this. "0s": never.
            reread_after: reader.duration_or_none("chain.reread_after", "1h", ["1m", "24h"]),
        } then {
            if max_staleness.zip(poll_interval).is_some_and(|(most, poll)| most < poll * 2) {
                let phrase =
                    "is shorter than two of chain.poll_interval; write a duration that is at least twice as long";
                reader.report(&["chain.max_staleness"], phrase);
            }
        }),
        registries: registries(reader, chain_id),
    })
}

fn registries(reader: &mut Reader, chain_id: Option<u64>) -> Option<Registries> {
    keys! { reader:
        /// Which contracts hold the agents: "documented", or "erc8004" for ERC-8004's registries of version 2 (docs/registries.md).
        is_erc8004 = reader.word("chain.registries", "documented", &[("documented", false), ("erc8004", true)]);
    }
    let known = chain_id.filter(|_| is_erc8004 == Some(true)).and_then(|id| facts(id).erc8004);
    if known.is_none() {
        let advice =
            if is_erc8004 == Some(true) { "; no ERC-8004 registry is known on this chain" } else { "" };
        reader.require("chain.contracts.identity", advice);
    }
    let [identity, reputation] = known.map_or([None; 2], |known| known.map(Some));
    let found = read_all!(reader: Registries {
        /// Required, but for ERC-8004 on chains where its registries are known: there identity and reputation are theirs if left out.
        /// The registry of agents and their owners; signatures are bound to this contract.
        /// Example: "0x5FbDB2315678afecb367f032d93F642f64180aa3"
        identity: reader.text("chain.contracts.identity", None, contract).or(identity),
        // `TierSettings` asks for it where stakes give agents their tiers.
        /// Required where the stake gives tiers ([tiers]). Which agent has staked how much. ERC-8004 has no such contract.
        /// Example: "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"
        stake_vault: Some(reader.text("chain.contracts.stake_vault", None, contract)),
        /// Optional. Feedback about agents; without it a profile shows none.
        /// Example: "0x9fE46736679d2D9a65F0992F2272dE9f3c7fa6e0"
        reputation: Some(reader.text("chain.contracts.reputation", None, contract).or(reputation)),
        // Of ERC-8004 its address is not published for every chain.
        /// Optional. Validations of agents; without it a profile shows none.
        /// Example: "0xCf7Ed3AccA5a467e9e704C703E8D87F634fB0Fc9"
        validation: Some(reader.text("chain.contracts.validation", None, contract)),
        /// Optional, and never for ERC-8004. Organizations of agents; without it a profile shows none.
        /// Example: "0xDc64a140Aa3E981100a9becA4E685f962f0cF6C9"
        /// How many entries of feedback a profile of "erc8004" looks at, 1 to 10000; it says so where there are more. The source of
        /// tiers "reputation" looks at as many.
        set: set(reader, is_erc8004),
    })?;
    for (number, (path, address)) in found.contracts().enumerate() {
        if let Some((other, _)) = found.contracts().take(number).find(|(_, other)| *other == address) {
            reader.warn(&[path], format!("is the address of {other}; registries are contracts of their own"));
        }
    }
    Some(found)
}

fn set(reader: &mut Reader, is_erc8004: Option<bool>) -> Option<RegistrySet> {
    let organization = reader.text("chain.contracts.organization", None, contract);
    let feedback_max = reader.integer("chain.feedback_max", 1_000, &(1..=10_000));
    if !is_erc8004? {
        return Some(RegistrySet::Documented { organization });
    }
    if organization.is_some() {
        let phrase = "is given, and ERC-8004 has no registry of organizations; remove it";
        reader.report(&["chain.contracts.organization"], phrase);
    }
    feedback_max.map(|feedback_max| RegistrySet::Erc8004 { feedback_max })
}

fn rpc_url(text: &str) -> Result<RpcUrl, String> {
    let wanted = "an absolute http:// or https:// URL without blanks, backslashes and #";
    valid_url(text, RpcUrl::parse(text), wanted)
}

/// The address of a contract. Mixed case is a checksum (EIP-55), so that a typing error is found here.
pub(crate) fn contract(text: &str) -> Result<Address, String> {
    let address = text.parse().ok().filter(|_: &Address| text.starts_with("0x"));
    let address = valid(text, address, "a contract's address, 0x and 40 hex digits")?;
    if address.is_zero() {
        return Err("is the zero address; write a contract's address".to_owned());
    }
    let digits = text.trim_start_matches("0x");
    let is_mixed = digits != digits.to_ascii_lowercase() && digits != digits.to_ascii_uppercase();
    if is_mixed && text != address.to_checksum(None) {
        return Err(format!("is {}, whose checksum (EIP-55) is wrong; check each digit", quoted(text)));
    }
    Ok(address)
}

/// Headers that say how a call is sent: they are ours to write.
const OURS: &[&str] = &[
    "connection",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads the headers for these nodes; nothing of them is checked against nodes that are wrong themselves.
fn rpc_headers(reader: &mut Reader, nodes: Option<&[RpcUrl]>) -> Option<Vec<RpcHeader<SecretSource>>> {
    let mut taken: Vec<(String, String)> = Vec::new();
    reader.tables("chain.rpc_headers", HEADERS_MAX, |reader| {
        reader.mask(Shown::Host, &["url"]);
        let header = read_all!(reader: RpcHeader {
            /// Scheme, host and port of one of rpc_urls.
            /// Example: "http://127.0.0.1:8545"
            origin: reader.required_text("url", |text| origin(text, nodes)),
            /// The header's name.
            /// Example: "x-api-key"
            name: reader.required_text("name", name),
            /// Its value.
            /// Example: "the provider's key"
            /// Instead of value, a file that holds it.
            value: reader.secret_or_file(["value", "value_file"], secret, Content::HeaderValue),
        } then {
            if !reader.is_given("value") && !reader.is_given("value_file") {
                reader.report(&["value"], "is missing; write value or value_file");
            }
        })?;
        let place = (header.origin.clone(), header.name.clone());
        if taken.contains(&place) {
            reader.report(&["name"], format!("is {} a second time for this url", quoted(&header.name)));
        }
        taken.push(place);
        Some(header)
    })
}

fn origin(text: &str, nodes: Option<&[RpcUrl]>) -> Result<String, String> {
    const ONE_OF_THEM: &str = "scheme, host and port of one of chain.rpc_urls, and nothing else";
    let url = valid_url(text, RpcUrl::parse(text), ONE_OF_THEM)?;
    let whole = url.reveal();
    let has_more = whole.path() != "/" || whole.query().is_some() || !whole.username().is_empty();
    if has_more || whole.password().is_some() {
        return Err(format!("has more than {url}; write {ONE_OF_THEM}"));
    }
    if nodes.is_some_and(|nodes| nodes.iter().all(|node| node.origin() != url.origin())) {
        return Err(format!("is {url}, where no node is; write {ONE_OF_THEM}"));
    }
    Ok(url.origin().to_owned())
}

fn name(text: &str) -> Result<String, String> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok().filter(|_| text.len() <= NAME_BYTES_MAX);
    let wanted = format_args!("a header's name of 1 to {NAME_BYTES_MAX} characters");
    let name = valid(text, name.map(|name| name.as_str().to_owned()), wanted)?;
    if OURS.contains(&name.as_str()) || name.starts_with("content-") {
        return Err(format!("is {}, which says how a call is sent; write another header", quoted(text)));
    }
    Ok(name)
}

/// The problem shows nothing of the text.
fn secret(text: &str) -> Result<Secret, String> {
    header_value(text).map_err(|NotAHeaderValue| format!("can't be sent: {NotAHeaderValue}"))
}
