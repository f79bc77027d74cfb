//! An amount of tokens as people write it ("1000", "0.5"), and in the token's smallest unit, as the chain counts it.

use alloy::primitives::U256;

use crate::config::written::{quoted, valid};

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
