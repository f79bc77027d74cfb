//! `[tiers]`: what gives agents their tiers, and the requests that each tier may make.

use std::ops::RangeInclusive;

use alloy::primitives::{Address, U256};

use crate::config::chain::contract;
use crate::config::choice::choice;
use crate::config::reader::Reader;
use crate::config::tokens::{amount, in_smallest_unit};
use crate::config::written::quoted;
use crate::domain::quota::Quota;
use crate::domain::tier::{PASSING_TIERS, PerTier, StakeThresholds, Tier, TierSource};

/// One item for each tier that may pass.
const ONE_PER_TIER: RangeInclusive<usize> = PASSING_TIERS.len()..=PASSING_TIERS.len();

/// The tiers that may be given or asked for; tier 0 never passes.
pub(super) const TIERS: RangeInclusive<i64> = 1..=4;

/// The sources of tiers by their names; true where each registered agent has one tier.
const SOURCES: [(&str, bool); 2] = [("stake_vault", false), ("everyone", true)];

/// How many requests a tier may be given.
pub(super) const REQUESTS_PER_MINUTE: RangeInclusive<i64> = 1..=1_000_000;

settings! {
    /// What each trust tier asks for and gives.
    #[derive(Copy)]
    TierSettings(reader) {
        /// How many decimals the staked token has; 0 to 36.
        token_decimals: u8 = reader.integer("tiers.token_decimals", 18, &(0..=36)),
        /// The staked token, for agents that have none yet.
        token: Option<Address> = Some(reader.optional_text("tiers.token", contract)),
        /// What gives agents their tiers.
        source: TierSource = source(reader, token_decimals),
        /// How many requests an agent of each tier may make; never falling.
        requests_per_minute: PerTier<Quota> = {
            const PATH: &str = "tiers.requests_per_minute";
            let limits = reader.integers(PATH, &[1, 16, 166, 2_700], &ONE_PER_TIER, &REQUESTS_PER_MINUTE);
            limits.and_then(|limits| requests_per_minute(reader, PATH, limits))
        },
    }
}

impl TierSettings {
    /// Asks for the stake vault where stakes give agents their tiers.
    pub(super) fn check_vault(&self, reader: &mut Reader, are_of_erc8004: bool) {
        let advice = if are_of_erc8004 {
            "; ERC-8004 has no stake: write the contract whose getStake(uint256) gives agents their tiers, or tiers.source = \"everyone\""
        } else {
            ""
        };
        if matches!(self.source, TierSource::StakeVault(_)) {
            reader.require("chain.contracts.stake_vault", advice);
        }
    }
}

/// What gives agents their tiers. Warns of settings that another source alone has: they do nothing.
fn source(reader: &mut Reader, token_decimals: Option<u8>) -> Option<TierSource> {
    let default = ["1000", "10000", "100000", "500000"];
    let amounts = reader.texts("tiers.stake", &default, &ONE_PER_TIER, amount);
    let stakes =
        amounts.zip(token_decimals).and_then(|(amounts, decimals)| stake(reader, &amounts, decimals));
    let of_everyone = reader.integer("tiers.tier", 1, &TIERS).and_then(tier);
    let is_everyone = reader.text("tiers.source", "stake_vault", choice(&SOURCES))?;
    let without_meaning: &[&str] =
        if is_everyone { &["tiers.stake", "tiers.token", "tiers.token_decimals"] } else { &["tiers.tier"] };
    for path in without_meaning.iter().filter(|path| reader.is_given(path)).collect::<Vec<_>>() {
        reader.warn(&[path], "has no meaning with this tiers.source; remove it");
    }
    if is_everyone { of_everyone.map(TierSource::Everyone) } else { stakes.map(TierSource::StakeVault) }
}

/// The passing tier with this number.
pub(super) fn tier(number: u8) -> Option<Tier> {
    PASSING_TIERS.into_iter().find(|tier| tier.number() == number)
}

/// The thresholds in the smallest unit, when they rise from tier to tier.
fn stake(reader: &mut Reader, amounts: &[String], decimals: u8) -> Option<StakeThresholds> {
    const PATH: &str = "tiers.stake";
    let units = amounts.iter().map(|amount| in_smallest_unit(amount, decimals));
    let thresholds = reader.check_items(PATH, units)?;
    let thresholds = <[U256; PASSING_TIERS.len()]>::try_from(thresholds).ok()?;
    let rising = thresholds.iter().zip(std::iter::once(&U256::ZERO).chain(&thresholds));
    for (place, (amount, (threshold, below))) in amounts.iter().zip(rising).enumerate() {
        if threshold <= below {
            let limit = if place == 0 { "0".to_owned() } else { format!("item {place}") };
            let phrase = format!("item {} is {}; write more than {limit}", place + 1, quoted(amount));
            reader.report(&[PATH], phrase);
        }
    }
    Some(PerTier::from_array(thresholds))
}

/// The quotas, when they do not fall from tier to tier.
pub(super) fn requests_per_minute(
    reader: &mut Reader,
    path: &'static str,
    limits: Vec<u32>,
) -> Option<PerTier<Quota>> {
    let limits = <[u32; PASSING_TIERS.len()]>::try_from(limits).ok()?;
    for (place, (limit, below)) in limits.iter().skip(1).zip(&limits).enumerate() {
        if limit < below {
            let phrase =
                format!("item {} is {limit}; write at least {below}, the limit of the tier below", place + 2);
            reader.report(&[path], phrase);
        }
    }
    Some(PerTier::from_array(limits.map(Quota::per_minute)))
}
