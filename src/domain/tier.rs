//! Trust tiers and what they follow from (contract, "Trust tier of an agent" and "Limits").

use alloy::primitives::U256;

/// A trust tier, 0 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
pub enum Tier {
    /// Tier 0: no stake, or less than tier 1 asks for. Never passes.
    Unverified,
    /// Tier 1.
    Bronze,
    /// Tier 2.
    Silver,
    /// Tier 3.
    Gold,
    /// Tier 4.
    Diamond,
}

/// The tiers, in rising order.
pub const TIERS: [Tier; 5] = [Tier::Unverified, Tier::Bronze, Tier::Silver, Tier::Gold, Tier::Diamond];

/// The tiers that may pass, in rising order.
pub const PASSING_TIERS: [Tier; 4] = [Tier::Bronze, Tier::Silver, Tier::Gold, Tier::Diamond];

impl Tier {
    /// The tier's number, 0 to 4, as the contract writes it.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The tier's name, for people.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One value for each tier that may pass, from tier 1 to tier 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerTier<T>(pub [T; PASSING_TIERS.len()]);

impl<T: Copy> PerTier<T> {
    /// The value for a tier; nothing for tier 0, which never passes.
    pub fn get(&self, tier: Tier) -> Option<T> {
        self.0.get(usize::from(tier.number().checked_sub(1)?)).copied()
    }
}

/// The passing tier with this number.
pub fn passing_tier(number: u8) -> Option<Tier> {
    PASSING_TIERS.into_iter().find(|tier| tier.number() == number)
}

/// The stake that each tier asks for, in the token's smallest unit.
pub type StakeThresholds = PerTier<U256>;

/// The highest tier whose threshold a number reaches. Thresholds are those of tier 1, 2, and so on, and never fall.
pub fn tier_of(thresholds: &[U256], number: U256) -> Tier {
    let reached = thresholds.iter().take_while(|least| number >= **least).count();
    TIERS.get(reached).copied().unwrap_or(Tier::Diamond)
}

#[cfg(test)]
mod tests {
    use super::{PASSING_TIERS, PerTier, StakeThresholds, Tier, U256, tier_of};

    fn thresholds() -> StakeThresholds {
        PerTier([1_000, 10_000, 100_000, 500_000].map(U256::from))
    }

    #[test]
    fn a_threshold_belongs_to_the_tier_it_opens() {
        for (tier, below) in
            PASSING_TIERS.into_iter().zip([Tier::Unverified, Tier::Bronze, Tier::Silver, Tier::Gold])
        {
            let threshold = thresholds().get(tier).unwrap();
            assert_eq!(tier_of(&thresholds().0, threshold), tier);
            assert_eq!(tier_of(&thresholds().0, threshold - U256::from(1)), below);
        }
    }

    #[test]
    fn no_stake_is_tier_0_and_any_stake_beyond_the_last_threshold_is_tier_4() {
        assert_eq!(tier_of(&thresholds().0, U256::ZERO).number(), 0);
        assert_eq!(tier_of(&thresholds().0, U256::MAX).number(), 4);
    }
}
