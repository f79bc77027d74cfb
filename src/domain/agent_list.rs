//! Agents that an operator lists with their tiers, one a line.

use std::{collections::HashMap, fmt::Debug};

use crate::domain::agent_id::AgentId;
use crate::domain::tier::{Tier, passing_tier};

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
pub fn parse(text: &str, agents_max: usize) -> Result<Agents, String> {
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

#[cfg(test)]
mod tests {
    use alloy::primitives::U256;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{AGENTS_MAX, AgentId, AgentList, Agents, Tier, parse};
    use crate::domain::tier::PASSING_TIERS;

    const HOW: &str = "write an agent's id and its tier, 1 to 4, such as \"1234 3\"";

    fn agents(listed: &[(u64, Tier)]) -> Agents {
        listed.iter().map(|(id, tier)| (AgentId::new(U256::from(*id)), *tier)).collect()
    }

    #[test]
    fn a_list_holds_an_agent_a_line_with_blanks_and_comments() {
        let text = "# agents of Acme\r\n\n1234 3\n\t 0007   1\t# bronze\r\n   \n0 4#\n5 2";
        let expected = [(1234, Tier::Gold), (7, Tier::Bronze), (0, Tier::Diamond), (5, Tier::Silver)];
        assert_eq!(parse(text, AGENTS_MAX), Ok(agents(&expected)));
        assert_eq!(parse("", AGENTS_MAX), Ok(Agents::new()));
        let largest = format!("{} 1", U256::MAX);
        assert_eq!(
            parse(&largest, AGENTS_MAX).unwrap().keys().copied().collect::<Vec<_>>(),
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
            assert_eq!(parse(&text, AGENTS_MAX), Err(format!("line 4: {HOW}")), "{line:?}");
        }
        for again in ["1 1", "01 2"] {
            let twice = "line 3: agent 1 is listed above; write each agent once".to_owned();
            assert_eq!(parse(&format!("1 1\n2 2\n{again}\n"), AGENTS_MAX), Err(twice), "{again}");
        }
    }

    #[test]
    fn one_agent_more_than_a_list_may_hold_is_refused() {
        let text = "1 1\n2 1\n# 3 1\n3 1\n";
        assert_eq!(parse(text, 3).map(|agents| agents.len()), Ok(3));
        assert_eq!(parse(text, 2), Err("line 4: there are more than 2 agents".to_owned()));
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
            let _ = (parse(&text, AGENTS_MAX), parse(&lines, AGENTS_MAX));
        }

        #[test]
        fn every_list_that_is_written_is_read_as_it_is(listed in proptest::collection::hash_map(any::<[u64; 4]>(), 0..4_usize, 0..20)) {
            let agent = |limbs: &[u64; 4]| AgentId::new(U256::from_limbs(*limbs));
            let expected: Agents = listed.iter().map(|(limbs, at)| (agent(limbs), PASSING_TIERS[*at])).collect();
            let text: String = expected.iter().map(|(agent, tier)| format!("{agent} {}\n", tier.number())).collect();
            prop_assert_eq!(parse(&text, AGENTS_MAX), Ok(expected));
        }
    }
}
