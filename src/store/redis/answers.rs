//! Reads the answers of scripts: a number that says what happened, and what goes with it. `scripts/answers.lua` has the
//! same numbers.

use redis::{FromRedisValue, Value};

use crate::domain::{HeldKey, KeyDays, KeyDigest, RetryAfter, UnixSeconds, Verdict, held_key};
use crate::ports::{Admission, KeySeen, NonceRefused};
use crate::store::redis::error::RedisError;

const ADMITTED: i64 = 0;
const LIMITED: i64 = 1;
const KEY_REVOKED: i64 = 2;
const NONCE_USED: i64 = 3;
const NONCE_FORGOTTEN: i64 = 4;
const DONE: i64 = 5;
const CHANGED: i64 = 6;
const UNUSED: i64 = 7;

/// Reads an answer as the client converts it. Numbers that may be out of range are read as `i64`: others would be cut.
pub(super) fn read<T: FromRedisValue>(answer: &Value) -> Result<T, RedisError> {
    T::from_redis_value_ref(answer).map_err(|_| RedisError::Unreadable)
}

/// Reads the answer of `admit_by_key.lua` and `admit_by_nonce.lua`.
pub(super) fn admission(answer: &Value) -> Result<Admission, RedisError> {
    verdict(answer).map(Admission::from).or_else(|_| match read(answer) {
        Ok((KEY_REVOKED,)) => Ok(Admission::KeyRevoked),
        _ => nonce_refused(answer).map(Admission::NonceRefused),
    })
}

/// Reads the answer of `hit.lua`.
pub(super) fn verdict(answer: &Value) -> Result<Verdict, RedisError> {
    match read(answer)? {
        (ADMITTED, left) => Ok(Verdict::Admitted { remaining: number(left)? }),
        (LIMITED, micros) => Ok(Verdict::Limited { retry_after_micros: from_now(micros) }),
        _ => Err(RedisError::Unreadable),
    }
}

/// The outcome of a change of keys that was worked out from a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    /// Refused, and nothing written: the record is another by now.
    Changed,
    /// As asked, nothing was written: the nonce is unused.
    Unused,
    NonceRefused(NonceRefused),
}

/// Reads the answer of `change_key.lua`.
pub(super) fn written(answer: &Value) -> Result<Written, RedisError> {
    match read(answer) {
        Ok((DONE,)) => Ok(Written::Done),
        Ok((CHANGED,)) => Ok(Written::Changed),
        Ok((UNUSED,)) => Ok(Written::Unused),
        _ => nonce_refused(answer).map(Written::NonceRefused),
    }
}

/// An agent's record, and the keys in it, at a moment of Redis' clock.
pub(super) struct Record {
    pub(super) bytes: Vec<u8>,
    pub(super) keys: Vec<HeldKey>,
    pub(super) now_secs: u64,
}

/// Reads the answer of `list.lua`.
pub(super) fn record(answer: &Value) -> Result<Record, RedisError> {
    let (bytes, secs): (Vec<u8>, i64) = read(answer)?;
    Ok(Record { keys: held(&bytes), bytes, now_secs: number(secs)? })
}

/// The keys of a record of either version. One that can't be read holds none.
fn held(record: &[u8]) -> Vec<HeldKey> {
    match <[u8; 32]>::try_from(record) {
        Ok(digest) => vec![HeldKey::plain(KeyDigest::from_bytes(digest), None, None)],
        Err(_) => std::str::from_utf8(record).ok().and_then(held_key::read).unwrap_or_default(),
    }
}

/// The days of a key, as its string says.
pub(super) fn days_of(text: &str) -> Option<KeyDays> {
    let mut days = text.split(' ').map(str::parse);
    Some(KeyDays { made: days.next()?.ok()?, used: days.next().transpose().ok()? })
}

fn nonce_refused(answer: &Value) -> Result<NonceRefused, RedisError> {
    if let Ok((NONCE_USED,)) = read(answer) {
        return Ok(NonceRefused::Used);
    }
    let (NONCE_FORGOTTEN, from, micros) = read(answer)? else { return Err(RedisError::Unreadable) };
    let retry_after = RetryAfter::from_micros(from_now(micros));
    Ok(NonceRefused::Forgotten { accepted_from: UnixSeconds(number(from)?), retry_after })
}

/// Reads the answer of `left.lua`.
pub(super) fn key_seen(answer: &Value) -> Result<KeySeen, RedisError> {
    let (left, record, secs): (i64, Vec<u8>, i64) = read(answer)?;
    let now_secs = number(secs)?;
    let has_key = held(&record).iter().any(|key| !key.is_replaced && key.is_live(now_secs));
    Ok(KeySeen { has_key, left: number(left)? })
}

/// A number that is in range.
pub(super) fn number<T: TryFrom<i64>>(number: i64) -> Result<T, RedisError> {
    T::try_from(number).map_err(|_| RedisError::Unreadable)
}

/// How long to wait. The shortest wait stands for a moment that has passed.
fn from_now(micros: i64) -> u64 {
    micros.max(0).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{Written, admission, verdict, written};
    use crate::domain::{RetryAfter, UnixSeconds, Verdict};
    use crate::ports::{Admission, NonceRefused};

    fn ints(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect())
    }

    #[test]
    fn the_numbers_are_those_of_the_scripts() {
        assert!(include_str!("scripts/answers.lua").contains(
            "ADMITTED, LIMITED, KEY_REVOKED, NONCE_USED, NONCE_FORGOTTEN, DONE, CHANGED, UNUSED = 0, 1, 2, 3, 4, 5, 6, 7"
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
            (&[3][..], Written::NonceRefused(NonceRefused::Used)),
            (&[4, 8, 9], Written::NonceRefused(NonceRefused::Forgotten { accepted_from, retry_after })),
            (&[5], Written::Done),
            (&[6], Written::Changed),
            (&[7], Written::Unused),
        ] {
            assert_eq!(written(&ints(numbers)).unwrap(), expected);
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
            ints(&[8]),
            ints(&[-1]),
            ints(&[5, 1]),
        ] {
            assert!(admission(&value).is_err(), "{value:?}");
            assert!(written(&value).is_err(), "{value:?}");
            assert!(verdict(&value).is_err(), "{value:?}");
        }
    }
}
