//! What scripts answer: a number, and what goes with it. `scripts/answers.lua` has the same numbers.

use redis::Value;

use crate::store::redis::trouble::Trouble;

/// One answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Admitted {
        remaining: u32,
    },
    Limited {
        retry_after_micros: u64,
    },
    KeyRevoked,
    NonceUsed,
    /// The epoch belongs to another process of Redis, or to shorter settings; nothing was done.
    Strange,
    Done(Vec<Vec<u8>>),
    KeyExists,
}

impl Answer {
    pub(super) fn read(value: &Value) -> Result<Self, Trouble> {
        let items = array(value).ok_or(Trouble::Unreadable)?;
        let mut items = items.iter();
        let answer = match items.next().and_then(number) {
            Some(0) => {
                let remaining = items.next().and_then(number).and_then(|number| u32::try_from(number).ok());
                remaining.map(|remaining| Self::Admitted { remaining })
            }
            Some(1) => {
                let micros = items.next().and_then(number);
                micros.map(|retry_after_micros| Self::Limited { retry_after_micros })
            }
            Some(2) => Some(Self::KeyRevoked),
            Some(3) => Some(Self::NonceUsed),
            Some(4) => Some(Self::Strange),
            Some(5) => items.next().map_or(Some(Vec::new()), texts).map(Self::Done),
            Some(6) => Some(Self::KeyExists),
            Some(_) | None => None,
        };
        answer.ok_or(Trouble::Unreadable)
    }
}

/// A whole number that is not negative.
pub(super) fn number(value: &Value) -> Option<u64> {
    if let Value::Int(number) = value { u64::try_from(*number).ok() } else { None }
}

/// A text.
pub(super) fn bytes(value: &Value) -> Option<&[u8]> {
    if let Value::BulkString(bytes) = value { Some(bytes) } else { None }
}

/// Values in a row, in whatever order.
pub(super) fn array(value: &Value) -> Option<&[Value]> {
    if let Value::Array(items) | Value::Set(items) = value { Some(items) } else { None }
}

/// Texts in a row.
pub(super) fn texts(value: &Value) -> Option<Vec<Vec<u8>>> {
    array(value)?.iter().map(|item| bytes(item).map(<[u8]>::to_vec)).collect()
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::Answer;

    fn ints(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect())
    }

    #[test]
    fn the_numbers_are_those_of_the_scripts() {
        let words = include_str!("scripts/answers.lua");
        assert!(words.contains(
            "ADMITTED, LIMITED, KEY_REVOKED, NONCE_USED, STRANGE, DONE, KEY_EXISTS = 0, 1, 2, 3, 4, 5, 6"
        ));
        for (numbers, answer) in [
            (&[0, 7][..], Answer::Admitted { remaining: 7 }),
            (&[1, 9], Answer::Limited { retry_after_micros: 9 }),
            (&[2], Answer::KeyRevoked),
            (&[3], Answer::NonceUsed),
            (&[4], Answer::Strange),
            (&[5], Answer::Done(Vec::new())),
            (&[6], Answer::KeyExists),
        ] {
            assert_eq!(Answer::read(&ints(numbers)).unwrap(), answer);
        }
    }

    #[test]
    fn anything_else_is_no_answer() {
        for value in [
            Value::Nil,
            Value::Okay,
            Value::Int(0),
            Value::BulkString(b"0".to_vec()),
            ints(&[]),
            ints(&[0]),
            ints(&[0, -1]),
            ints(&[0, i64::MAX]),
            ints(&[1]),
            ints(&[7]),
            ints(&[-1]),
            Value::Array(vec![Value::Int(5), Value::Int(1)]),
            Value::Array(vec![Value::Int(5), Value::Array(vec![Value::Nil])]),
        ] {
            assert!(Answer::read(&value).is_err(), "{value:?}");
        }
    }
}
