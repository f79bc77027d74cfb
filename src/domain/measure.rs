//! Numbers on the chain, besides stakes, that give agents their tiers.

use alloy::primitives::{Address, U256};

use crate::domain::tier::{self, Tier};

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
        tier::tier_of(&self.thresholds, number)
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, U256};

    use super::{Measure, Question};
    use crate::domain::tier::Tier;

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
}
