//! Reads the answers of scripts: a number that says what happened, and what goes with it. `scripts/answers.lua` has the
//! same numbers.

use redis::Value;

use crate::domain::api_key::KeyDigest;
use crate::domain::freshness::UnixSeconds;
use crate::domain::quota::RetryAfter;
use crate::domain::window::Verdict;
use crate::ports::store::{Admission, KeyChanged, KeySeen, NonceRefused};
use crate::store::redis::error::RedisError;

const ADMITTED: u64 = 0;
const LIMITED: u64 = 1;
const KEY_REVOKED: u64 = 2;
const NONCE_USED: u64 = 3;
const NONCE_FORGOTTEN: u64 = 4;
const DONE: u64 = 5;
const KEY_EXISTS: u64 = 6;

/// Reads the answer of `admit_by_key.lua` and `admit_by_nonce.lua`.
pub(super) fn admission(value: &Value) -> Result<Admission, RedisError> {
    match parts(value)? {
        (ADMITTED, [left]) => Ok(Admission::Admitted { remaining: count(left)? }),
        (LIMITED, [micros]) => Ok(Admission::Limited { retry_after: retry_after(micros)? }),
        (KEY_REVOKED, []) => Ok(Admission::KeyRevoked),
        parts => nonce_refused(parts).map(Admission::NonceRefused),
    }
}

/// Reads the answer of `change_key.lua`: what became of the change, and the digest that was replaced.
pub(super) fn key_change(value: &Value) -> Result<(KeyChanged, Option<KeyDigest>), RedisError> {
    let changed = match parts(value)? {
        (DONE, []) => KeyChanged::Done,
        (DONE, [replaced]) => {
            let replaced = bytes(replaced)?.try_into().map_err(|_| RedisError::Unreadable)?;
            return Ok((KeyChanged::Done, Some(KeyDigest::from_bytes(replaced))));
        }
        (KEY_EXISTS, []) => KeyChanged::KeyExists,
        parts => KeyChanged::NonceRefused(nonce_refused(parts)?),
    };
    Ok((changed, None))
}

fn nonce_refused(parts: (u64, &[Value])) -> Result<NonceRefused, RedisError> {
    match parts {
        (NONCE_USED, []) => Ok(NonceRefused::Used),
        (NONCE_FORGOTTEN, [from, micros]) => Ok(NonceRefused::Forgotten {
            accepted_from: UnixSeconds(number(from)?),
            retry_after: retry_after(micros)?,
        }),
        _ => Err(RedisError::Unreadable),
    }
}

/// Reads the answer of `hit.lua`.
pub(super) fn verdict(value: &Value) -> Result<Verdict, RedisError> {
    match parts(value)? {
        (ADMITTED, [left]) => Ok(Verdict::Admitted { remaining: count(left)? }),
        (LIMITED, [wait]) => Ok(Verdict::Limited { retry_after_micros: micros(wait)? }),
        _ => Err(RedisError::Unreadable),
    }
}

/// Reads the answer of `left.lua`.
pub(super) fn key_seen(value: &Value) -> Result<KeySeen, RedisError> {
    let [left, keys] = array(value)? else { return Err(RedisError::Unreadable) };
    Ok(KeySeen { has_key: number(keys)? == 1, left: count(left)? })
}

/// A whole number that is not negative.
pub(super) fn number(value: &Value) -> Result<u64, RedisError> {
    let number = if let Value::Int(number) = value { u64::try_from(*number).ok() } else { None };
    number.ok_or(RedisError::Unreadable)
}

/// A text.
pub(super) fn bytes(value: &Value) -> Result<&[u8], RedisError> {
    if let Value::BulkString(bytes) = value { Ok(bytes) } else { Err(RedisError::Unreadable) }
}

/// Values in a row, in any order.
pub(super) fn array(value: &Value) -> Result<&[Value], RedisError> {
    if let Value::Array(items) | Value::Set(items) = value { Ok(items) } else { Err(RedisError::Unreadable) }
}

fn parts(value: &Value) -> Result<(u64, &[Value]), RedisError> {
    let (first, rest) = array(value)?.split_first().ok_or(RedisError::Unreadable)?;
    Ok((number(first)?, rest))
}

fn count(value: &Value) -> Result<u32, RedisError> {
    u32::try_from(number(value)?).map_err(|_| RedisError::Unreadable)
}

/// How long to wait. The shortest wait stands for a moment that has passed.
fn retry_after(value: &Value) -> Result<RetryAfter, RedisError> {
    micros(value).map(RetryAfter::from_micros)
}

fn micros(value: &Value) -> Result<u64, RedisError> {
    let Value::Int(micros) = value else { return Err(RedisError::Unreadable) };
    Ok(u64::try_from(*micros).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{admission, key_change, verdict};
    use crate::domain::freshness::UnixSeconds;
    use crate::domain::quota::RetryAfter;
    use crate::domain::window::Verdict;
    use crate::ports::store::{Admission, KeyChanged, NonceRefused};

    fn ints(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect())
    }

    #[test]
    fn the_numbers_are_those_of_the_scripts() {
        assert!(include_str!("scripts/answers.lua").contains(
            "ADMITTED, LIMITED, KEY_REVOKED, NONCE_USED, NONCE_FORGOTTEN, DONE, KEY_EXISTS = 0, 1, 2, 3, 4, 5, 6"
        ));
        let retry_after = RetryAfter::from_micros(9);
        let accepted_from = UnixSeconds(8);
        for (numbers, expected) in [
            (&[0, 7][..], Admission::Admitted { remaining: 7 }),
            (&[1, 9], Admission::Limited { retry_after }),
            (&[2], Admission::KeyRevoked),
            (&[3], Admission::NonceRefused(NonceRefused::Used)),
            (&[4, 8, 9], Admission::NonceRefused(NonceRefused::Forgotten { accepted_from, retry_after })),
        ] {
            assert_eq!(admission(&ints(numbers)).unwrap(), expected);
        }
        for (numbers, expected) in [
            (&[3][..], KeyChanged::NonceRefused(NonceRefused::Used)),
            (&[4, 8, 9], KeyChanged::NonceRefused(NonceRefused::Forgotten { accepted_from, retry_after })),
            (&[5], KeyChanged::Done),
            (&[6], KeyChanged::KeyExists),
        ] {
            assert_eq!(key_change(&ints(numbers)).unwrap(), (expected, None));
        }
        assert_eq!(verdict(&ints(&[0, 7])).unwrap(), Verdict::Admitted { remaining: 7 });
        assert_eq!(verdict(&ints(&[1, 9])).unwrap(), Verdict::Limited { retry_after_micros: 9 });
    }

    #[test]
    fn a_moment_that_has_passed_is_no_reason_to_wait_for_long() {
        let Admission::NonceRefused(NonceRefused::Forgotten { retry_after, .. }) =
            admission(&ints(&[4, 8, -9])).unwrap()
        else {
            panic!()
        };
        assert_eq!(retry_after.seconds(), 1);
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
            ints(&[4]),
            ints(&[7]),
            ints(&[-1]),
            Value::Array(vec![Value::Int(5), Value::Int(1)]),
            Value::Array(vec![Value::Int(5), Value::BulkString(vec![0; 31])]),
        ] {
            assert!(admission(&value).is_err(), "{value:?}");
            assert!(key_change(&value).is_err(), "{value:?}");
            assert!(verdict(&value).is_err(), "{value:?}");
        }
    }
}
