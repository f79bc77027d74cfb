//! What gives agents their tiers, and how much of it.

use alloy::primitives::U256;

use super::bounds::{check, settings};
use super::{minimal_with, problems};
use crate::domain::PerTier;

#[test]
fn stakes_are_four_rising_amounts_above_0_of_a_token_with_0_to_36_decimals() {
    check(
        "tiers.stake",
        "['0.000000000000000001', '1', '2.50', '03']",
        "[], ['1', '2', '3'], ['1', '2', '3', '4', '5'], ['0', '2', '3', '4'], ['0.0', '2', '3', '4'],
         ['1', '1', '3', '4'], ['1', '3', '2', '4'], ['0.0000000000000000001', '2', '3', '4'],
         ['1', '2', '3', '-4'], ['1', '2', '3', '4.'], ['1', '2', '3', '.4'], ['1', '2', '3', '4e3'],
         ['1', '2', '3', '4_000'], ['1', '2', '3', '4,0'], ['1', '2', '3', '']",
    );
}

#[test]
fn a_fraction_counts_by_the_decimals_of_the_token() {
    let keys = [("tiers.token_decimals", "2"), ("tiers.stake", r#"["0.5", "0.510", "1", "0012.34"]"#)];
    let units = [50, 51, 100, 1_234].map(U256::from);
    assert_eq!(settings(&keys).fixed.tiers.sources.stakes, Some(PerTier(units)));
    let keys = [("tiers.token_decimals", "0"), ("tiers.stake", r#"["1", "2.0", "3", "3.5"]"#)];
    let found = problems(&minimal_with(&keys), &[]);
    assert!(found.len() == 1 && found[0].starts_with("tiers.stake: item 4 is \"3.5\""), "{found:?}");
}
