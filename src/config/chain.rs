//! `[chain]` and `[chain.contracts]`: how the chain is reached and where the registries stand.

use std::num::NonZeroU32;

use alloy::primitives::Address;

use crate::config::choice::choice;
use crate::config::reader::Reader;
use crate::config::rpc_headers;
use crate::config::written::{Shown, quoted, valid_url};
use crate::domain::chain_settings::{Lifetimes, PoolSettings, ReaderSettings};
use crate::domain::chains::facts;
use crate::domain::registries::{Registries, RegistrySet};
use crate::domain::rpc_header::RpcHeader;
use crate::domain::rpc_url::RpcUrl;
use crate::domain::secret::SecretSource;

/// How many RPC URLs there may be.
const RPC_URLS_MAX: usize = 16;

settings! {
    /// The chain and its registries.
    ChainSettings(reader) {
        /// The nodes.
        pool: PoolSettings = pool(reader),
        /// True for a chain to try things on, whose owners' keys are public.
        development: bool = reader.boolean("chain.development", false),
        /// Headers of every call, by the origin of the node.
        rpc_headers: Vec<RpcHeader<SecretSource>> =
            rpc_headers::read(reader, pool.as_ref().map(|pool| &*pool.urls)),
        /// The registries.
        reading: ReaderSettings = reading(reader, pool.as_ref().map(|pool| pool.chain_id)),
    }
}

fn pool(reader: &mut Reader) -> Option<PoolSettings> {
    reader.mask(Shown::Host, &["chain.rpc_urls", "chain.http_proxy"]);
    read_all!(PoolSettings {
        urls: reader.texts("chain.rpc_urls", &["http://127.0.0.1:8545"], &(1..=RPC_URLS_MAX), rpc_url),
        chain_id: {
            let advice = "; write the id of the chain that rpc_urls are on, as eth_chainId says it";
            reader.require("chain.chain_id", advice);
            reader.optional_integer("chain.chain_id", &(1..=i64::MAX))
        },
        // So short that a second node can be tried within the time that a read has (`chain::reader`).
        request_timeout: reader.duration("chain.request_timeout", "2s", ["1ns", "5s"]),
        calls_per_second: {
            let calls = reader.optional_integer("chain.calls_per_second", &(1..=100_000));
            Some(calls.and_then(NonZeroU32::new))
        },
        proxy: Some(reader.optional_text("chain.http_proxy", rpc_url)),
    })
}

fn reading(reader: &mut Reader, chain_id: Option<u64>) -> Option<ReaderSettings> {
    read_all!(ReaderSettings {
        // Long enough for chains whose blocks are far between. None where blocks come only when somebody asks for one.
        max_head_age: reader.duration_or_none("chain.max_head_age", "10m", ["10s", "24h"]),
        gas_cap: reader.integer("chain.gas_cap", 50_000_000, &(1_000_000..=1_000_000_000)),
        multicall: {
            let known = facts(chain_id.unwrap_or_default()).multicall;
            reader.text("chain.multicall", &known.to_checksum(None), contract)
        },
        lifetimes: lifetimes(reader),
        registries: registries(reader, chain_id),
    })
}

fn lifetimes(reader: &mut Reader) -> Option<Lifetimes> {
    read_all!(Lifetimes {
        // So long that a node is not asked without a pause.
        poll_interval: reader.duration("chain.poll_interval", "1s", ["50ms", "60s"]),
        max_staleness: reader.duration("chain.max_staleness", "5s", ["1ns", "10m"]),
        // Long enough that agents in use cost next to nothing.
        reread_after: reader.duration_or_none("chain.reread_after", "1h", ["1m", "24h"]),
    } then {
        if max_staleness.zip(poll_interval).is_some_and(|(most, poll)| most < poll * 2) {
            let phrase =
                "is shorter than two of chain.poll_interval; write a duration that is at least twice as long";
            reader.report(&["chain.max_staleness"], phrase);
        }
    })
}

fn registries(reader: &mut Reader, chain_id: Option<u64>) -> Option<Registries> {
    let kinds = choice(&[("documented", false), ("erc8004", true)]);
    let is_erc8004 = reader.text("chain.registries", "documented", kinds);
    let known = chain_id.filter(|_| is_erc8004 == Some(true)).and_then(|id| facts(id).erc8004);
    if known.is_none() {
        let advice =
            if is_erc8004 == Some(true) { "; no ERC-8004 registry is known on this chain" } else { "" };
        reader.require("chain.contracts.identity", advice);
    }
    let [identity, reputation] = known.map_or([None; 2], |known| known.map(Some));
    let found = read_all!(Registries {
        identity: reader.optional_text("chain.contracts.identity", contract).or(identity),
        // `TierSettings` asks for it where stakes give agents their tiers.
        stake_vault: Some(reader.optional_text("chain.contracts.stake_vault", contract)),
        reputation: Some(reader.optional_text("chain.contracts.reputation", contract).or(reputation)),
        // Of ERC-8004 its address is not published for every chain.
        validation: Some(reader.optional_text("chain.contracts.validation", contract)),
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
    let organization = reader.optional_text("chain.contracts.organization", contract);
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
    let malformed = || format!("is {}; write a contract's address, 0x and 40 hex digits", quoted(text));
    let digits = text.strip_prefix("0x").ok_or_else(malformed)?;
    let address: Address = text.parse().map_err(|_| malformed())?;
    if address.is_zero() {
        return Err("is the zero address; write a contract's address".to_owned());
    }
    let has = |one_case: fn(&u8) -> bool| digits.bytes().any(|byte| one_case(&byte));
    let mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    if mixed && text != address.to_checksum(None) {
        return Err(format!("is {}, whose checksum (EIP-55) is wrong; check each digit", quoted(text)));
    }
    Ok(address)
}
