//! Decimal strings that stand for uint256, as agent ids and nonces are written (contract, "Agent" and "Signed request").

use alloy::primitives::U256;

/// The longest accepted text: 2^256 - 1 has 78 digits. Counted before parsing, so zeros in front count too.
pub const DIGITS_MAX: usize = 78;

/// The text is not a decimal number below 2^256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotUint256 {
    /// Nothing was written.
    #[error("it is empty")]
    Empty,
    /// Something other than the digits 0 to 9 was written.
    #[error("it has characters other than the digits 0 to 9")]
    NotDecimal,
    /// More than [`DIGITS_MAX`] digits, or a number of 2^256 or more.
    #[error("it is 2^256 or more, or has more than {DIGITS_MAX} digits")]
    TooLarge,
}

/// Parses a decimal number. "7", "07" and "007" are the same number.
pub fn parse_decimal(text: &str) -> Result<U256, NotUint256> {
    if text.is_empty() {
        return Err(NotUint256::Empty);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotUint256::NotDecimal);
    }
    if text.len() > DIGITS_MAX {
        return Err(NotUint256::TooLarge);
    }
    U256::from_str_radix(text, 10).map_err(|_| NotUint256::TooLarge)
}

/// A number in decimal. Nearly all are below 2^128, where this is several times as fast as the general way.
pub fn decimal(number: U256) -> String {
    match u128::try_from(number) {
        Ok(small) => small.to_string(),
        Err(_) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{NotUint256, U256, decimal, parse_decimal};

    #[test]
    fn numbers_are_written_in_decimal_below_and_above_2_to_the_128() {
        let edge = U256::from(u128::MAX);
        for number in [U256::ZERO, U256::from(7), edge, edge + U256::from(1), U256::MAX] {
            assert_eq!(decimal(number), number.to_string());
        }
    }

    #[test]
    fn leading_zeros_do_not_make_another_number() {
        for text in ["7", "07", "007", &format!("{:0>78}", 7)] {
            assert_eq!(parse_decimal(text), Ok(U256::from(7)), "{text}");
        }
    }

    #[test]
    fn the_largest_uint256_is_the_last_accepted() {
        let largest = U256::MAX.to_string();
        assert_eq!(parse_decimal(&largest), Ok(U256::MAX));
        let next = format!("{}6", &largest[..largest.len() - 1]);
        assert_eq!(parse_decimal(&next), Err(NotUint256::TooLarge));
    }

    #[test]
    fn more_than_78_digits_are_refused_whatever_they_say() {
        assert_eq!(parse_decimal(&format!("{:0>79}", 7)), Err(NotUint256::TooLarge));
    }

    #[test]
    fn signs_spaces_hex_separators_and_foreign_digits_are_refused() {
        for text in ["-1", "+1", " 1", "1 ", "0x1", "1_000", "1e3", "1.0", "٣", "１"] {
            assert_eq!(parse_decimal(text), Err(NotUint256::NotDecimal), "{text:?}");
        }
        assert_eq!(parse_decimal(""), Err(NotUint256::Empty));
    }

    proptest! {
        #[test]
        fn every_uint256_survives_the_round_trip(limbs in any::<[u64; 4]>()) {
            let number = U256::from_limbs(limbs);
            prop_assert_eq!(parse_decimal(&number.to_string()), Ok(number));
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = parse_decimal(&text);
        }
    }
}
