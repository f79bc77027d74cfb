//! An amount of tokens as people write it ("1000", "0.5"), and in the token's smallest unit, as the chain counts it.

use alloy::primitives::U256;

use crate::config::written::quoted;
use crate::domain::uint256;

/// An amount in whole tokens. How many decimals the token has is another matter.
#[derive(Debug)]
pub(super) struct Tokens {
    text: String,
}

impl Tokens {
    /// Reads digits, with a point and digits behind it if need be.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let well_formed = match text.split_once('.') {
            Some((whole, fraction)) => digits(whole) && digits(fraction),
            None => digits(text),
        };
        if !well_formed {
            return Err(format!(
                "is {}; write an amount of tokens, such as \"1000\" or \"0.5\"",
                quoted(text)
            ));
        }
        Ok(Self { text: text.to_owned() })
    }

    /// The amount as it was written, for problems.
    pub(super) fn shown(&self) -> String {
        quoted(&self.text)
    }

    /// The amount in the smallest unit of a token with so many decimals.
    pub(super) fn in_smallest_unit(&self, decimals: u8) -> Result<U256, String> {
        let (whole, fraction) = self.text.split_once('.').unwrap_or((&self.text, ""));
        let fraction = fraction.trim_end_matches('0');
        let Some(padding) = usize::from(decimals).checked_sub(fraction.len()) else {
            return Err(format!(
                "is {}; a token of {decimals} decimals (tiers.token_decimals) can't be divided so finely",
                self.shown()
            ));
        };
        let digits = format!("{whole}{fraction}{}", "0".repeat(padding));
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(U256::ZERO);
        }
        uint256::parse_decimal(digits).map_err(|_| {
            format!("is {}; write an amount below 2^256 in the token's smallest unit", self.shown())
        })
    }
}
