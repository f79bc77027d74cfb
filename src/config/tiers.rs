//! `[tiers]`: what gives agents their tiers, and the requests that each tier may make.

use std::ops::RangeInclusive;

use alloy::primitives::Address;

use crate::config::tier_sources::{ONE_PER_TIER, sources};
use crate::config::{chain::contract, reader::Reader};
use crate::domain::{PASSING_TIERS, PerTier, Question, Quota, ReaderSettings, RegistrySet, TierSources};

/// How many requests a tier may be given.
pub(super) const REQUESTS_PER_MINUTE: RangeInclusive<i64> = 1..=1_000_000;

settings! {
    /// What each trust tier asks for and gives.
    TierSettings(reader) {
        /// How many decimals the staked token has, 0 to 36.
        token_decimals: u8 = reader.integer("tiers.token_decimals", 18, &(0..=36)),
        /// Optional. The address of the staked token, which /.well-known/tiergate tells agents that have none yet.
        /// Example: "0xa513E6E4b8f2a923D98304ec87F64353C4D5C853"
        token: Option<Address> = Some(reader.text("tiers.token", None, contract)),
        /// What gives agents their tiers.
        sources: TierSources = sources(reader, token_decimals),
        /// How many requests an agent of tiers 1 to 4 may make in any 60 seconds: each from 1 to 1000000, none less than the one
        /// before.
        /// Example: [1, 16, 166, 2700]
        requests_per_minute: PerTier<Quota> = {
            const PATH: &str = "tiers.requests_per_minute";
            let limits = reader.integers(PATH, &[1, 16, 166, 2_700], &ONE_PER_TIER, &REQUESTS_PER_MINUTE);
            limits.and_then(|limits| requests_per_minute(reader, PATH, limits))
        },
    }
}

impl TierSettings {
    /// Asks for the contracts that the sources of tiers need.
    pub(super) fn check(&mut self, reader: &mut Reader, chain: Option<&ReaderSettings>) {
        let TierSources { stakes, measures, .. } = &mut self.sources;
        let has_wallets = chain.is_some_and(|chain| chain.registries.has_wallets());
        if stakes.is_some() {
            let advice = if has_wallets {
                "; ERC-8004 has no stake: write the contract whose getStake(uint256) gives agents their tiers, or another tiers.source"
            } else {
                ""
            };
            reader.require("chain.contracts.stake_vault", advice);
        } else if !measures.is_empty() && reader.is_given("chain.contracts.stake_vault") {
            let phrase = "gives no agent its tier; remove it, or make it a source of tiers";
            reader.warn(&["chain.contracts.stake_vault"], phrase);
        }
        let Some(ReaderSettings { registries, lifetimes, .. }) = chain else { return };
        for measure in measures {
            let source = measure.source;
            match &mut measure.question {
                Question::Balance { of_wallet: true } if !has_wallets => {
                    let phrase =
                        "is of = \"agent_wallet\", and these registries have no wallets; write \"owner\"";
                    reader.report(&["tiers"], format!("the source \"{source}\" {phrase}"));
                }
                Question::Call { .. } if lifetimes.reread_after.is_none() => {
                    let phrase = "may tell no change; write a duration";
                    reader.report(
                        &["chain.reread_after"],
                        format!("is 0, and the source \"{source}\" {phrase}"),
                    );
                }
                Question::Feedback(of) => match (registries.set, registries.reputation) {
                    (RegistrySet::Erc8004 { feedback_max }, Some(reputation)) => {
                        measure.contract = reputation;
                        of.each = (feedback_max / u32::try_from(of.clients.len()).unwrap_or(1)).max(1);
                    }
                    _ => {
                        let phrase = "needs the reputation registry of ERC-8004";
                        reader.report(&["tiers"], format!("the source \"{source}\" {phrase}"));
                    }
                },
                Question::Balance { .. } | Question::Call { .. } => {}
            }
        }
    }
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
    Some(PerTier(limits.map(Quota::per_minute)))
}
