//! Sources of tiers: the one in `[tiers]`, or several in `[[tiers.sources]]`, whose tables have the same keys. A further source
//! is a row of [`SOURCES`], and of another kind an arm of `source`.

use std::{collections::BTreeSet, ops::RangeInclusive};

use alloy::primitives::{Address, U256, keccak256};

use crate::config::written::{file, quoted, valid};
use crate::config::{chain::contract, notes::Content, reader::Reader};
use crate::domain::{Feedback, Measure, PASSING_TIERS, PerTier, Question, TierSources, tier::passing_tier};

/// One item for each tier that may pass.
pub(super) const ONE_PER_TIER: RangeInclusive<usize> = PASSING_TIERS.len()..=PASSING_TIERS.len();

/// The tiers that may be given or asked for; tier 0 never passes.
pub(super) const TIERS: RangeInclusive<i64> = 1..=4;

/// How many sources there may be.
const SOURCES_MAX: usize = 8;

/// How many clients' feedback may count.
const CLIENTS_MAX: usize = 100;

/// The longest tag of feedback, in bytes.
const TAG_BYTES_MAX: usize = 100;

/// A source: its name; the keys that it needs, and those that it may have besides; how many decimals its thresholds have where
/// nobody writes it; and its kind.
type Source = (&'static str, &'static [&'static str], &'static [&'static str], u8, Kind);

/// The ways to give tiers.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Stakes,
    Balance,
    Call,
    Feedback,
    List,
    Everyone,
}

/// The keys that most sources need.
const OF_CONTRACT: &[&str] = &["tiers.contract", "tiers.thresholds"];

/// All sources. Amounts of a token that says nothing else, and sums of feedback, have 18 decimals.
const SOURCES: [Source; 7] = [
    ("stake_vault", &[], &["tiers.stake"], 0, Kind::Stakes),
    ("erc20", OF_CONTRACT, &["tiers.of", "tiers.decimals"], 18, Kind::Balance),
    ("erc721", OF_CONTRACT, &["tiers.of"], 0, Kind::Balance),
    ("call", &["tiers.contract", "tiers.function", "tiers.thresholds"], &["tiers.decimals"], 0, Kind::Call),
    (
        "reputation",
        &["tiers.clients", "tiers.thresholds"],
        &["tiers.average_over", "tiers.tag"],
        18,
        Kind::Feedback,
    ),
    ("list", &["tiers.file"], &[], 0, Kind::List),
    ("everyone", &[], &["tiers.tier"], 0, Kind::Everyone),
];

/// The keys of all sources; some are there more than once.
fn keys() -> impl Iterator<Item = &'static str> {
    SOURCES.into_iter().flat_map(|(_, needs, takes, ..)| needs.iter().chain(takes).copied())
}

/// The sources of a configuration, whose staked token has so many decimals.
pub(super) fn sources(reader: &mut Reader, token_decimals: Option<u8>) -> Option<TierSources> {
    let mut alone = TierSources::default();
    let read = source(reader, token_decimals, |key| key, &mut alone);
    let in_table = |key: &'static str| key.strip_prefix("tiers.").unwrap_or(key);
    let mut sources = TierSources::default();
    let several = reader.tables("tiers.sources", SOURCES_MAX, |reader| {
        let is_new = source(reader, token_decimals, in_table, &mut sources)?;
        reader.check("source", is_new.then_some(()).ok_or("is there already".to_owned()))
    })?;
    if several.is_empty() {
        return read.map(|_| alone);
    }
    let stray: Vec<_> = keys().chain(["tiers.source"]).filter(|key| reader.is_given(key)).collect();
    if let Some(key) = stray.first() {
        reader.report(&[key], "stands beside [[tiers.sources]]; write it in one of these tables");
    }
    stray.is_empty().then_some(sources)
}

/// Adds the source whose keys stand at these paths; false if there was such a source, and can't be another. Warns of keys that
/// others alone have: they do nothing.
fn source(
    reader: &mut Reader,
    token_decimals: Option<u8>,
    at: fn(&'static str) -> &'static str,
    sources: &mut TierSources,
) -> Option<bool> {
    let names = SOURCES.map(|source| (source.0, source));
    keys! { reader:
        /// The source of agents' tiers (docs/registries.md): "stake_vault", "erc20", "erc721", "call", "reputation", "list" or
        /// "everyone". Several, of which the highest tier counts: up to eight tables [[tiers.sources]] with these keys, which are then not
        /// written here.
        chosen = reader.word(at("tiers.source"), "stake_vault", &names);
        /// For "erc20", "erc721" and "call": the contract that is asked.
        /// Example: "0x0165878A594ca255338adfa4d48449f69242Eb8F"
        contract = reader.text(at("tiers.contract"), None, contract);
        /// For "erc20" and "erc721": whose tokens count, the "owner"'s or, with ERC-8004's registries, the "agent_wallet"'s.
        is_of_wallet = reader.word(at("tiers.of"), "owner", &[("owner", false), ("agent_wallet", true)]);
        /// For "call": the function that is asked about the agent's id; it returns one uint256.
        /// Example: "score(uint256)"
        selector = reader.text(at("tiers.function"), None, function);
        /// How many decimals the number has, 0 to 36: 18 for "erc20" and 0 for "call" if left out.
        /// Example: 18
        decimals: Option<u8> = reader.integer(at("tiers.decimals"), None, &(0..=36));
        /// For these and "reputation": the least number for tier 1, 2 and so on, one to four decimal numbers in quotes. The first is more
        /// than 0, none is less than the one before, and tiers without one are not given.
        /// Example: ["10", "100"]
        amounts = reader.optional_texts(at("tiers.thresholds"), PASSING_TIERS.len(), amount);
        /// For "reputation": the clients whose feedback counts, 1 to 100, each once. The newest entries of each are looked at, and all clients
        /// share chain.feedback_max evenly.
        /// Example: ["0x70997970C51812dc3A010C7d01b50e0d17dc79C8"]
        clients = reader.optional_texts(at("tiers.clients"), CLIENTS_MAX, self::contract);
        /// For "reputation": the first tag of the feedback that counts, at most 100 bytes; "": any. Tags have units of their own.
        tag = reader.text(at("tiers.tag"), "starred", |text| {
            let is_short = text.len() <= TAG_BYTES_MAX;
            valid(text, is_short.then(|| text.to_owned()), "at most 100 bytes")
        });
        /// The stake that opens tiers 1 to 4 with "stake_vault", in whole tokens, each a decimal number in quotes. A fraction ("0.5")
        /// is allowed if it is whole in the token's smallest unit. The first is more than 0, and each is more than the one before.
        stakes =
            reader.texts(at("tiers.stake"), &["1000", "10000", "100000", "500000"], &ONE_PER_TIER, amount);
    }
    let stakes = stakes.zip(token_decimals);
    let stakes =
        stakes.and_then(|(amounts, decimals)| rising(reader, at("tiers.stake"), &amounts, decimals, 1));
    let clients = clients.and_then(|clients| reader.distinct(at("tiers.clients"), clients));
    let clients_max = clients.as_ref().map(Vec::len).filter(|count| *count > 0).unwrap_or(CLIENTS_MAX);
    keys! { reader:
        /// For "reputation": the average counts, and nothing unless so many of these clients have written, 1 to all. Left out: the sum.
        /// Example: 1
        average_over = reader.integer(at("tiers.average_over"), None, &(1..=clients_max as i64));
        /// For "list": a file with an agent's id and tier a line, as "42 3".
        /// Example: "agents.txt"
        file = reader.text(at("tiers.file"), None, file);
        /// For "everyone": the tier of each registered agent, 1 to 4. A registration costs next to nothing.
        tier = reader.integer(at("tiers.tier"), 1, &TIERS).and_then(passing_tier);
    }
    let (name, needs, takes, usual, kind) = chosen?;
    let meant = |key: &&str| needs.contains(key) || takes.contains(key);
    let others: BTreeSet<_> = keys().filter(|key| !meant(key) && reader.is_given(at(key))).collect();
    for key in others {
        reader.warn(&[at(key)], format!("has no meaning with the source \"{name}\"; remove it"));
    }
    for key in needs {
        reader.require(at(key), &format!(" with the source \"{name}\""));
    }
    if needs.iter().any(|key| !reader.is_given(at(key))) {
        return None;
    }
    if let Some(file) = file.as_ref().filter(|_| needs.contains(&"tiers.file")) {
        reader.note_file(&[at("tiers.file")], Content::Agents(file.clone()));
    }
    let decimals = decimals.filter(|_| takes.contains(&"tiers.decimals")).unwrap_or(usual);
    let amounts = amounts.filter(|_| needs.contains(&"tiers.thresholds"));
    let thresholds =
        amounts.and_then(|amounts| rising(reader, at("tiers.thresholds"), &amounts, decimals, 0));
    let stakes = stakes.and_then(|stakes| stakes.try_into().ok()).map(PerTier);
    let is_token = matches!(kind, Kind::Balance) && takes.contains(&"tiers.decimals");
    sources.tokens.extend(contract.filter(|_| is_token).map(|token| (token, decimals)));
    let asked = |contract: Option<Address>, question: Option<Question>| {
        let (contract, question, thresholds) = (contract?, question?, thresholds?);
        sources.measures.push(Measure { source: name, contract, question, thresholds });
        Some(true)
    };
    match kind {
        Kind::Stakes => Some(sources.stakes.replace(stakes?).is_none()),
        Kind::Balance => asked(contract, is_of_wallet.map(|of_wallet| Question::Balance { of_wallet })),
        Kind::Call => asked(contract, selector.map(|selector| Question::Call { selector })),
        Kind::Feedback => {
            let of = clients.zip(tag);
            let of = of.map(|(clients, tag)| Feedback { clients, tag, average_over, each: 1 });
            // It stands in the contract of the registries.
            asked(Some(Address::ZERO), of.map(Question::Feedback))
        }
        Kind::List => Some(sources.list.replace(file?).is_none()),
        Kind::Everyone => Some(sources.everyone.replace(tier?).is_none()),
    }
}

/// A function of an agent's id, by its signature.
fn function(text: &str) -> Result<[u8; 4], String> {
    let name = text.strip_suffix("(uint256)").filter(|name| {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$';
        let mut bytes = name.bytes();
        bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
    });
    let selector = name.and_then(|_| keccak256(text).first_chunk().copied());
    valid(text, selector, "the signature of a function of the agent's id, such as \"score(uint256)\"")
}

/// The amounts in the smallest unit, when the first is more than 0 and each at least so much more than the one before.
fn rising(
    reader: &mut Reader,
    path: &'static str,
    amounts: &[String],
    decimals: u8,
    step: u64,
) -> Option<Vec<U256>> {
    let units = amounts.iter().map(|amount| in_smallest_unit(amount, decimals));
    let thresholds = reader.check_items(path, units)?;
    let below = std::iter::once(&U256::ZERO).chain(&thresholds);
    for (place, (amount, (threshold, below))) in amounts.iter().zip(thresholds.iter().zip(below)).enumerate()
    {
        let least = if place == 0 { 1 } else { step };
        if threshold.checked_sub(*below).is_none_or(|more| more < U256::from(least)) {
            let limit = match (place, step) {
                (0, _) => "more than 0".to_owned(),
                (_, 0) => format!("no less than item {place}"),
                _ => format!("more than item {place}"),
            };
            let phrase = format!("item {} is {}; write {limit}", place + 1, quoted(amount));
            reader.report(&[path], phrase);
        }
    }
    Some(thresholds)
}

/// Reads digits, with a point and digits behind it if need be. How many decimals the token has is another matter.
pub(super) fn amount(text: &str) -> Result<String, String> {
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_amount = are_digits(whole) && are_digits(fraction);
    valid(text, is_amount.then(|| text.to_owned()), "an amount of tokens, such as \"1000\" or \"0.5\"")
}

/// The amount in the smallest unit of a token with so many decimals.
pub(super) fn in_smallest_unit(amount: &str, decimals: u8) -> Result<U256, String> {
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    let (fraction, width) = (fraction.trim_end_matches('0'), usize::from(decimals));
    let amount = quoted(amount);
    if fraction.len() > width {
        return Err(format!(
            "is {amount}; a token of {decimals} decimals (tiers.token_decimals) can't be divided so finely"
        ));
    }
    U256::from_str_radix(&format!("{whole}{fraction:0<width$}"), 10)
        .map_err(|_| format!("is {amount}; write an amount below 2^256 in the token's smallest unit"))
}
