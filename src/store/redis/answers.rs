//! Reads the answers of scripts: a number that says what happened, and what goes with it. `scripts/answers.lua` has the
//! same numbers.

use alloy::primitives::hex;
use redis::{FromRedisValue, Value};

use crate::domain::api_key::KeyDigest;
use crate::domain::freshness::UnixSeconds;
use crate::domain::held_key::{self, HeldKey, KeyDays};
use crate::domain::key_terms::KeyName;
use crate::domain::quota::RetryAfter;
use crate::domain::window::Verdict;
use crate::ports::store::{Admission, KeyChanged, KeySeen, MadeKey, NonceRefused};
use crate::store::redis::error::RedisError;

const ADMITTED: i64 = 0;
const LIMITED: i64 = 1;
const KEY_REVOKED: i64 = 2;
const NONCE_USED: i64 = 3;
const NONCE_FORGOTTEN: i64 = 4;
const DONE: i64 = 5;
const KEY_EXISTS: i64 = 6;
const NO_SUCH_KEY: i64 = 7;

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

/// Reads the answer of `change_key.lua`: the outcome, end and name of a key that was made, and the digests of keys that are over.
pub(super) fn key_change(answer: &Value) -> Result<(KeyChanged, MadeKey, Vec<KeyDigest>), RedisError> {
    if let Value::Array(parts) = answer
        && let [Value::Int(DONE), ends, name, gone @ ..] = &**parts
    {
        let made = MadeKey {
            name: held_key::maybe(&read::<String>(name)?, |text| KeyName::parse(text).ok())
                .ok_or(RedisError::Unreadable)?,
            ends: Some(number(read(ends)?)?).filter(|ends| *ends > 0),
        };
        let gone: Result<Vec<_>, _> = gone.iter().map(digest).collect();
        return Ok((KeyChanged::Done, made, gone?));
    }
    let changed = match read(answer) {
        Ok((KEY_EXISTS,)) => KeyChanged::KeyExists,
        Ok((NO_SUCH_KEY,)) => KeyChanged::NoSuchKey,
        _ => KeyChanged::NonceRefused(nonce_refused(answer)?),
    };
    Ok((changed, MadeKey { name: None, ends: None }, Vec::new()))
}

/// Reads the answer of `list.lua`: the keys that have not ended.
pub(super) fn keys(answer: &Value) -> Result<Vec<HeldKey>, RedisError> {
    let Value::Array(parts) = answer else { return Err(RedisError::Unreadable) };
    let [record, seconds, days @ ..] = &**parts else { return Err(RedisError::Unreadable) };
    let (mut keys, seconds) = (held(&read::<Vec<u8>>(record)?), number(read(seconds)?)?);
    keys.retain(|key| key.is_live(seconds));
    for (key, days) in keys.iter_mut().zip(days) {
        key.days = days_of(&read::<String>(days)?);
    }
    Ok(keys)
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

fn digest(hex: &Value) -> Result<KeyDigest, RedisError> {
    let bytes = hex::FromHex::from_hex(read::<String>(hex)?);
    bytes.map(KeyDigest::from_bytes).map_err(|_| RedisError::Unreadable)
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
    let (left, has_key) = read(answer)?;
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

    use super::{admission, key_change, verdict};
    use crate::domain::freshness::UnixSeconds;
    use crate::domain::key_terms::KeyName;
    use crate::domain::quota::RetryAfter;
    use crate::domain::window::Verdict;
    use crate::ports::store::{Admission, KeyChanged, MadeKey, NonceRefused};

    fn ints(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect())
    }

    #[test]
    fn the_numbers_are_those_of_the_scripts() {
        assert!(include_str!("scripts/answers.lua").contains(
            "ADMITTED, LIMITED, KEY_REVOKED, NONCE_USED, NONCE_FORGOTTEN, DONE, KEY_EXISTS, NO_SUCH_KEY = 0, 1, 2, 3, 4, 5, 6, 7"
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
        let none = MadeKey { name: None, ends: None };
        for (numbers, expected) in [
            (&[3][..], KeyChanged::NonceRefused(NonceRefused::Used)),
            (&[4, 8, 9], KeyChanged::NonceRefused(NonceRefused::Forgotten { accepted_from, retry_after })),
            (&[6], KeyChanged::KeyExists),
            (&[7], KeyChanged::NoSuchKey),
        ] {
            assert_eq!(key_change(&ints(numbers)).unwrap(), (expected, none.clone(), Vec::new()));
        }
        let done = |ends, name: &str| {
            let name = Value::BulkString(name.into());
            key_change(&Value::Array(vec![Value::Int(5), Value::Int(ends), name]))
        };
        assert_eq!(done(0, "-").unwrap(), (KeyChanged::Done, none, Vec::new()));
        assert_eq!(done(9, "ci").unwrap().1, MadeKey { name: KeyName::parse("ci").ok(), ends: Some(9) });
        assert!(done(-1, "-").is_err() && done(0, "").is_err());
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
            Value::Array(vec![Value::Int(5), Value::Int(1)]),
            ints(&[5]),
            Value::Array(vec![
                Value::Int(5),
                Value::Int(0),
                Value::BulkString(b"-".to_vec()),
                Value::BulkString(vec![b'0'; 62]),
            ]),
        ] {
            assert!(admission(&value).is_err(), "{value:?}");
            assert!(key_change(&value).is_err(), "{value:?}");
            assert!(verdict(&value).is_err(), "{value:?}");
        }
    }
}
