//! An agent's trust profile as read from the chain (contract, "Verification result").

use std::sync::OnceLock;

use alloy::primitives::{Address, I256, U256};

use crate::domain::{tier::Tier, uint256::decimal};

/// What the registries say about one agent, from one block.
#[derive(Debug, Clone, PartialEq)]
pub struct TrustProfile {
    /// Who may act for it.
    pub holders: Holders,
    /// The staked amount in the token's smallest unit; nothing where there is no stake vault.
    pub stake: Option<U256>,
    /// The highest tier that another number on the chain gives it, and the place of that in the configuration.
    pub measured: Option<(Tier, u8)>,
    /// The rest, which decides nothing. `None` where it can't be read: strangers write most of it.
    pub details: Option<Details>,
    /// Owner and stake as text.
    pub texts: Texts,
}

/// The accounts that may sign for an agent: its owner and, where its registry names one, the agent's own wallet (ERC-8004,
/// `getAgentWallet`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holders {
    /// The owner of the agent's NFT.
    pub owner: Address,
    /// The agent's wallet, where one is set. It acts only where `signature.agent_wallet` says so.
    pub wallet: Option<Address>,
}

impl Holders {
    /// The owner alone.
    pub const fn owned_by(owner: Address) -> Self {
        Self { owner, wallet: None }
    }

    /// True if this account may act for the agent; its wallet may where wallets are heard.
    pub fn may_act(&self, account: Address, hears_wallet: bool) -> bool {
        account == self.owner || (hears_wallet && self.wallet == Some(account))
    }
}

/// The fields of a profile besides holders and stake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// What others say about it.
    pub reputation: Reputation,
    /// What validators found; nothing when there was no validation.
    pub validation: Validation,
    /// The agent's metadata URI. Untrusted text, never fetched.
    pub metadata_uri: String,
    /// The organizations it belongs to, in the registry's order.
    pub organizations: Vec<Organization>,
}

impl TrustProfile {
    /// The owner with the checksum of EIP-55.
    pub fn owner_text(&self) -> &str {
        self.written().get(..OWNER_BYTES).unwrap_or_default()
    }

    /// The stake in decimal; nothing where there is no stake vault.
    pub fn stake_text(&self) -> Option<&str> {
        self.written().get(OWNER_BYTES..).filter(|text| !text.is_empty())
    }

    /// How many bytes the texts take at most. A digit stands for more than three bits.
    pub fn texts_bytes_max(&self) -> usize {
        OWNER_BYTES + self.stake.map_or(0, |stake| stake.bit_len() / 3 + 1)
    }

    fn written(&self) -> &str {
        let write = || {
            let stake = self.stake.map(decimal).unwrap_or_default();
            (self.holders.owner.to_checksum(None) + &stake).into()
        };
        self.texts.0.get_or_init(write)
    }
}

/// An address in hexadecimal, with 0x, in bytes.
const OWNER_BYTES: usize = 42;

/// Owner and stake as text. They are written when they are first asked for: a checksum is a hash, and long numbers are slow
/// to write.
#[derive(Debug, Clone, Default)]
pub struct Texts(OnceLock<Box<str>>);

/// They follow from the profile.
impl PartialEq for Texts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Feedback about an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reputation {
    /// The sum of all scores, in units of its decimals; may be negative.
    pub total_score: I256,
    /// How many of its digits stand behind the point, at most 18.
    pub decimals: u8,
    /// How many submissions there are.
    pub feedback_count: u64,
    /// True if there is more feedback than was looked at.
    pub is_bounded: bool,
}

impl Reputation {
    /// The mean score; nothing when there is no feedback.
    pub fn average_rating(&self) -> Option<f64> {
        let unit = 10_f64.powi(self.decimals.into());
        (self.feedback_count > 0).then(|| to_f64(self.total_score) / unit / self.feedback_count as f64)
    }

    /// The sum in decimal, without zeros at the end of a fraction.
    pub fn total_text(&self) -> String {
        if self.decimals == 0 {
            return self.total_score.to_string();
        }
        let sign = if self.total_score.is_negative() { "-" } else { "" };
        let unit = U256::from(10).pow(U256::from(self.decimals));
        let (whole, rest) = self.total_score.unsigned_abs().div_rem(unit);
        let fraction = format!("{:0>1$}", decimal(rest), self.decimals.into());
        match fraction.trim_end_matches('0') {
            "" => format!("{sign}{whole}"),
            fraction => format!("{sign}{whole}.{fraction}"),
        }
    }
}

/// Validations of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validation {
    /// How many submissions there are.
    pub count: u64,
    /// The latest of them; nothing when there is none.
    pub latest: Option<Box<LatestValidation>>,
    /// True if there are more than were looked at.
    pub is_bounded: bool,
}

/// The latest validation of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatestValidation {
    /// Whether the agent passed.
    pub passed: bool,
    /// The validator's evidence. Untrusted text.
    pub evidence: String,
    /// Who validated.
    pub validator: Address,
}

/// An organization that an agent belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Organization {
    /// The organization's id in its registry.
    pub org_id: U256,
    /// Its name. Untrusted text.
    pub name: String,
    /// Whether the registry calls it verified.
    pub verified: bool,
}

/// The nearest double. A 256-bit number always has a finite one.
fn to_f64(number: I256) -> f64 {
    let magnitude = f64::from(number.unsigned_abs());
    if number.is_negative() { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::{I256, Reputation};

    fn average(total: i64, feedback_count: u64) -> Option<f64> {
        let total_score = I256::try_from(total).unwrap();
        Reputation { total_score, feedback_count, ..Reputation::default() }.average_rating()
    }

    #[test]
    fn the_average_is_total_by_count_and_absent_without_feedback() {
        assert_eq!(average(0, 0), None);
        assert_eq!(average(9, 2), Some(4.5));
        assert_eq!(average(-7, 2), Some(-3.5));
        assert_eq!(average(0, 3), Some(0.0));
    }

    #[test]
    fn a_sum_with_decimals_is_written_exactly_and_without_zeros_behind() {
        let reputation = |total: &str, decimals| Reputation {
            total_score: total.parse().unwrap(),
            decimals,
            feedback_count: 2,
            is_bounded: false,
        };
        for (total, decimals, text) in [
            ("-9", 0, "-9"),
            ("4500000000000000000", 18, "4.5"),
            ("-1", 18, "-0.000000000000000001"),
            ("9000000000000000000", 18, "9"),
            ("0", 18, "0"),
            (
                "170141183460469231731687303715884105727000000000000000001",
                18,
                "170141183460469231731687303715884105727.000000000000000001",
            ),
        ] {
            assert_eq!(reputation(total, decimals).total_text(), text);
        }
        assert_eq!(reputation("4500000000000000000", 18).average_rating(), Some(2.25));
    }

    #[test]
    fn the_average_of_the_widest_total_is_a_finite_number() {
        for total_score in [I256::MIN, I256::MAX] {
            let average = Reputation { total_score, feedback_count: 1, ..Reputation::default() }
                .average_rating()
                .unwrap();
            assert!(average.is_finite());
        }
    }
}
