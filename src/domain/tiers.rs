//! What gives agents their tiers: one source or several, of which the highest counts. The documented one is the stake vault.

use std::{path::PathBuf, sync::Arc};

use alloy::primitives::{Address, U256};

use crate::domain::tier::{StakeThresholds, Tier, tier_of};
use crate::domain::{agent_id::AgentId, agent_list::AgentList, measure::Measure, profile::TrustProfile};

/// The sources that are configured; at least one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TierSources {
    /// The stake of each tier, where the stake vault is a source.
    pub stakes: Option<StakeThresholds>,
    /// Further numbers on the chain.
    pub measures: Vec<Measure>,
    /// The ERC-20 tokens among them, with the decimals that their thresholds were written in.
    pub tokens: Vec<(Address, u8)>,
    /// The file that lists agents with their tiers.
    pub list: Option<PathBuf>,
    /// The tier of each registered agent.
    pub everyone: Option<Tier>,
}

/// An agent's tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grade {
    /// The tier.
    pub tier: Tier,
    /// The source that gave it, which answers name; `None` where only stakes give tiers, as documented.
    pub source: Option<&'static str>,
}

/// Grades agents.
#[derive(Debug, Clone)]
pub struct Tiers {
    sources: Arc<TierSources>,
    list: Arc<dyn AgentList>,
}

impl TierSources {
    /// The least stake of this tier, which is 0 for tier 0; `None` where no stake gives a tier.
    pub fn stake_of(&self, tier: Tier) -> Option<U256> {
        self.stakes.map(|stakes| stakes.get(tier).unwrap_or_default())
    }

    /// True where only stakes give tiers, as documented.
    pub fn are_stakes_alone(&self) -> bool {
        self.measures.is_empty() && self.list.is_none() && self.everyone.is_none()
    }

    /// Each by its name in the configuration and in answers, with the number on the chain that it is.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, Option<&Measure>)> {
        let stakes = self.stakes.map(|_| (STAKE_VAULT, None));
        let measures = self.measures.iter().map(|measure| (measure.source, Some(measure)));
        let list = self.list.as_ref().map(|_| (LIST, None));
        let everyone = self.everyone.map(|_| (EVERYONE, None));
        stakes.into_iter().chain(measures).chain(list).chain(everyone)
    }
}

const STAKE_VAULT: &str = "stake_vault";
const LIST: &str = "list";
const EVERYONE: &str = "everyone";

impl Tiers {
    /// Grades by these sources, and this list where that is one of them.
    pub fn new(sources: TierSources, list: Arc<dyn AgentList>) -> Self {
        Self { sources: Arc::new(sources), list }
    }

    /// Grades by the same sources and another list.
    pub fn with(&self, list: Arc<dyn AgentList>) -> Self {
        Self { sources: Arc::clone(&self.sources), list }
    }

    /// The sources.
    pub fn sources(&self) -> &TierSources {
        &self.sources
    }

    /// The grade of a registered agent: the highest that a source gives it, of equal ones the first in the order of
    /// [`TierSources`].
    pub fn grade(&self, agent: AgentId, profile: &TrustProfile) -> Grade {
        let TierSources { stakes, measures, list, everyone, .. } = &*self.sources;
        let staked =
            stakes.map(|stakes| (tier_of(&stakes.0, profile.stake.unwrap_or_default()), STAKE_VAULT));
        let name = |place: u8| measures.get(usize::from(place)).map_or(STAKE_VAULT, |measure| measure.source);
        let measured = profile.measured.map(|(tier, place)| (tier, name(place)));
        let listed = list.as_ref().map(|_| (self.list.tier_of(agent), LIST));
        let registered = everyone.map(|tier| (tier, EVERYONE));
        // Of equal ones the last is taken.
        let given = [registered, listed, measured, staked].into_iter().flatten();
        let (tier, source) = given.max_by_key(|(tier, _)| *tier).unwrap_or((Tier::Unverified, STAKE_VAULT));
        Grade { tier, source: (!self.sources.are_stakes_alone()).then_some(source) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alloy::primitives::{Address, U256};

    use super::{Grade, TierSources, Tiers};
    use crate::domain::measure::{Measure, Question};
    use crate::domain::profile::{Texts, TrustProfile};
    use crate::domain::tier::{PerTier, Tier};
    use crate::domain::{agent_id::AgentId, agent_list::Agents, holders::Holders};

    const AGENT: AgentId = AgentId::new(U256::ONE);

    fn grade(sources: &TierSources, stake: Option<u64>, measured: Option<(Tier, u8)>) -> Grade {
        let holders = Holders::owned_by(Address::ZERO);
        let stake = stake.map(U256::from);
        let profile = TrustProfile { holders, stake, measured, details: None, texts: Texts::default() };
        Tiers::new(sources.clone(), Arc::new(Agents::new())).grade(AGENT, &profile)
    }

    fn vault() -> TierSources {
        let stakes = Some(PerTier([10, 20, 30, 40].map(U256::from)));
        TierSources { stakes, ..TierSources::default() }
    }

    #[test]
    fn only_stakes_give_tiers_without_a_name_as_documented() {
        for (stake, tier) in [(9, Tier::Unverified), (10, Tier::Bronze), (40, Tier::Diamond)] {
            assert_eq!(grade(&vault(), Some(stake), None), Grade { tier, source: None });
        }
        assert_eq!(vault().stake_of(Tier::Gold), Some(U256::from(30)));
        assert_eq!(vault().stake_of(Tier::Unverified), Some(U256::ZERO));
    }

    #[test]
    fn of_several_sources_the_highest_counts_and_is_named() {
        let both = TierSources { everyone: Some(Tier::Silver), ..vault() };
        for (stake, tier, source) in [
            (0, Tier::Silver, "everyone"),
            (20, Tier::Silver, "stake_vault"),
            (30, Tier::Gold, "stake_vault"),
        ] {
            assert_eq!(grade(&both, Some(stake), None), Grade { tier, source: Some(source) });
        }
        let token = Measure {
            source: "erc20",
            contract: Address::ZERO,
            question: Question::Balance { of_wallet: false },
            thresholds: Vec::new(),
        };
        let all = TierSources { measures: vec![token], ..both };
        let measured = |stake, tier| grade(&all, Some(stake), Some((tier, 0)));
        assert_eq!(measured(30, Tier::Diamond), Grade { tier: Tier::Diamond, source: Some("erc20") });
        assert_eq!(measured(0, Tier::Bronze).source, Some("everyone"));
        assert_eq!(measured(0, Tier::Silver).source, Some("erc20"));
    }

    #[test]
    fn everyone_has_the_tier_that_is_given_and_no_stake_gives_more() {
        let everyone = TierSources { everyone: Some(Tier::Silver), ..TierSources::default() };
        for stake in [None, Some(u64::MAX)] {
            let silver = Grade { tier: Tier::Silver, source: Some("everyone") };
            assert_eq!(grade(&everyone, stake, None), silver);
        }
        assert_eq!(everyone.stake_of(Tier::Gold), None);
    }
}
