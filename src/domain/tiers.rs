//! What gives agents their tiers: one source or several, of which the highest counts. The documented one is the stake vault; others
//! are numbers on the chain, and agents that an operator lists.

use std::{collections::HashMap, fmt::Debug, path::PathBuf, sync::Arc};

use alloy::primitives::{Address, U256};

use crate::domain::tier::{StakeThresholds, Tier, passing_tier, tier_of};
use crate::domain::{agent_id::AgentId, profile::TrustProfile};

/// A number that the chain has for each agent, and the least of it for each tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// The source's name in the configuration and in answers.
    pub source: &'static str,
    /// The contract that is asked.
    pub contract: Address,
    /// What it is asked for.
    pub question: Question,
    /// The least number for tier 1, 2, and so on; never falling. Tiers without one are not given.
    pub thresholds: Vec<U256>,
}

/// What a contract is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// How many of its tokens the agent's owner has, or its wallet (ERC-20, ERC-721).
    Balance {
        /// True if the wallet's count.
        of_wallet: bool,
    },
    /// What a function of the agent's id returns.
    Call {
        /// The function.
        selector: [u8; 4],
    },
    /// What some clients say of the agent (ERC-8004), with 18 decimals.
    Feedback(Feedback),
}

/// Which feedback counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feedback {
    /// The clients that count.
    pub clients: Vec<Address>,
    /// Its first tag; empty: any.
    pub tag: String,
    /// The average, of at least so many clients; `None`: the sum.
    pub average_over: Option<usize>,
    /// How many entries of each client are looked at, the newest ones.
    pub each: u32,
}

impl Measure {
    /// The tier that this number gives.
    pub fn tier_of(&self, number: U256) -> Tier {
        tier_of(&self.thresholds, number)
    }
}

/// How many agents a list may hold.
pub const AGENTS_MAX: usize = 1_000_000;

/// Listed agents with their tiers.
pub type Agents = HashMap<AgentId, Tier>;

/// A list of agents, or the one that is in force whenever it is asked.
pub trait AgentList: Debug + Send + Sync {
    /// The tier of an agent: 0 if it is not listed.
    fn tier_of(&self, agent: AgentId) -> Tier;
}

impl AgentList for Agents {
    fn tier_of(&self, agent: AgentId) -> Tier {
        self.get(&agent).copied().unwrap_or(Tier::Unverified)
    }
}

/// Reads a list of at most so many agents: an agent's id and its tier a line, and comments behind `#`.
/// Error: the first line that is wrong.
pub fn parse_list(text: &str, agents_max: usize) -> Result<Agents, String> {
    let mut agents = Agents::new();
    for (number, line) in (1_usize..).zip(text.lines()) {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        let Some(id) = words.next() else { continue };
        let agent = AgentId::parse(id).ok();
        let tier =
            words.next().filter(|word| word.len() == 1).and_then(|word| passing_tier(word.parse().ok()?));
        let (Some(agent), Some(tier), None) = (agent, tier, words.next()) else {
            return Err(format!(
                "line {number}: write an agent's id and its tier, 1 to 4, such as \"1234 3\""
            ));
        };
        if agents.insert(agent, tier).is_some() {
            return Err(format!("line {number}: agent {agent} is listed above; write each agent once"));
        }
        if agents.len() > agents_max {
            return Err(format!("line {number}: there are more than {agents_max} agents"));
        }
    }
    Ok(agents)
}

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
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{
        AGENTS_MAX, AgentId, AgentList, Agents, Grade, Measure, Question, Tier, TierSources, Tiers,
        parse_list,
    };
    use crate::domain::profile::{Holders, Texts, TrustProfile};
    use crate::domain::tier::{PASSING_TIERS, PerTier};

    #[test]
    fn a_number_gives_the_tier_whose_least_it_reaches_and_none_without_a_least() {
        let thresholds = [10, 10, 30].map(U256::from).into();
        let question = Question::Balance { of_wallet: false };
        let measure = Measure { source: "erc20", contract: Address::ZERO, question, thresholds };
        for (number, tier) in [
            (U256::ZERO, Tier::Unverified),
            (U256::from(9), Tier::Unverified),
            (U256::from(10), Tier::Silver),
            (U256::from(29), Tier::Silver),
            (U256::from(30), Tier::Gold),
            (U256::MAX, Tier::Gold),
        ] {
            assert_eq!(measure.tier_of(number), tier, "{number}");
        }
    }

    const HOW: &str = "write an agent's id and its tier, 1 to 4, such as \"1234 3\"";

    fn agents(listed: &[(u64, Tier)]) -> Agents {
        listed.iter().map(|(id, tier)| (AgentId::new(U256::from(*id)), *tier)).collect()
    }

    #[test]
    fn a_list_holds_an_agent_a_line_with_blanks_and_comments() {
        let text = "# agents of Acme\r\n\n1234 3\n\t 0007   1\t# bronze\r\n   \n0 4#\n5 2";
        let expected = [(1234, Tier::Gold), (7, Tier::Bronze), (0, Tier::Diamond), (5, Tier::Silver)];
        assert_eq!(parse_list(text, AGENTS_MAX), Ok(agents(&expected)));
        assert_eq!(parse_list("", AGENTS_MAX), Ok(Agents::new()));
        let largest = format!("{} 1", U256::MAX);
        assert_eq!(
            parse_list(&largest, AGENTS_MAX).unwrap().keys().copied().collect::<Vec<_>>(),
            [AgentId::new(U256::MAX)]
        );
    }

    #[test]
    fn a_line_that_is_wrong_is_named_and_the_first_of_several() {
        let too_large = format!("{}0 1", U256::MAX);
        for line in [
            "8",
            "8 0",
            "8 5",
            "8 03",
            "8 +3",
            "8 -1",
            "8 3 4",
            "8,3",
            "8 3,",
            "x 3",
            "3 x",
            "0x8 3",
            "-8 3",
            "8\u{a0}3",
            "8 3\r9 3",
            "\u{feff}8 3",
            "8 # 3",
            "; 8 3",
            &too_large,
        ] {
            let text = format!("1 1\n\n# ok\n{line}\n2 9\n");
            assert_eq!(parse_list(&text, AGENTS_MAX), Err(format!("line 4: {HOW}")), "{line:?}");
        }
        for again in ["1 1", "01 2"] {
            let twice = "line 3: agent 1 is listed above; write each agent once".to_owned();
            assert_eq!(parse_list(&format!("1 1\n2 2\n{again}\n"), AGENTS_MAX), Err(twice), "{again}");
        }
    }

    #[test]
    fn one_agent_more_than_a_list_may_hold_is_refused() {
        let text = "1 1\n2 1\n# 3 1\n3 1\n";
        assert_eq!(parse_list(text, 3).map(|agents| agents.len()), Ok(3));
        assert_eq!(parse_list(text, 2), Err("line 4: there are more than 2 agents".to_owned()));
    }

    #[test]
    fn agents_that_are_not_listed_have_tier_0() {
        for (listed, tier) in [(&[][..], Tier::Unverified), (&[(1, Tier::Gold)], Tier::Gold)] {
            assert_eq!(agents(listed).tier_of(AgentId::new(U256::ONE)), tier);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), lines in "([0-9a# \\t]{0,6}\n){0,9}") {
            let _ = (parse_list(&text, AGENTS_MAX), parse_list(&lines, AGENTS_MAX));
        }

        #[test]
        fn every_list_that_is_written_is_read_as_it_is(listed in proptest::collection::hash_map(any::<[u64; 4]>(), 0..4_usize, 0..20)) {
            let agent = |limbs: &[u64; 4]| AgentId::new(U256::from_limbs(*limbs));
            let expected: Agents = listed.iter().map(|(limbs, at)| (agent(limbs), PASSING_TIERS[*at])).collect();
            let text: String = expected.iter().map(|(agent, tier)| format!("{agent} {}\n", tier.number())).collect();
            prop_assert_eq!(parse_list(&text, AGENTS_MAX), Ok(expected));
        }
    }

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
