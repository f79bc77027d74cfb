//! An agent's keys in memory. One without terms, which nearly all are, takes no more room than it needs.

use std::mem;

use alloy::primitives::Address;

use crate::domain::{AgentId, HeldKey, KeyDigest, WebOrigin};
use crate::ports::KeyOwner;

/// The keys of one agent.
#[derive(Debug, Clone)]
pub(super) enum Keys {
    /// No key.
    None,
    /// One without terms.
    One(PlainKey),
    /// Several, or one with terms; never empty. The flag: it was used and nobody has taken note of that.
    Several(Box<[(HeldKey, bool)]>),
}

/// A key without terms.
#[derive(Debug, Clone)]
pub(super) struct PlainKey {
    digest: KeyDigest,
    origin: Option<WebOrigin>,
    signer: Option<Address>,
    /// True once it was used and nobody has taken note of that.
    is_used: bool,
}

impl Keys {
    pub(super) fn of(mut keys: Vec<HeldKey>) -> Self {
        match (keys.len(), keys.pop()) {
            (_, None) => Self::None,
            (1, Some(key)) if key.is_plain() => Self::One(PlainKey {
                digest: key.digest,
                origin: key.origin,
                signer: key.signer,
                is_used: false,
            }),
            (_, Some(last)) => {
                keys.push(last);
                Self::Several(keys.into_iter().map(|key| (key, false)).collect())
            }
        }
    }

    pub(super) fn digests(&self) -> Vec<KeyDigest> {
        match self {
            Self::None => Vec::new(),
            Self::One(key) => vec![key.digest],
            Self::Several(keys) => keys.iter().map(|(key, _)| key.digest).collect(),
        }
    }

    /// True if there is one that has not ended and that no other has replaced.
    pub(super) fn has_current(&self, now_secs: u64) -> bool {
        match self {
            Self::None => false,
            Self::One(_) => true,
            Self::Several(keys) => keys.iter().any(|(key, _)| !key.is_replaced && key.is_live(now_secs)),
        }
    }

    /// True if this key is among them and has not ended.
    pub(super) fn has(&mut self, digest: &KeyDigest, now_secs: impl Fn() -> u64) -> bool {
        match self {
            Self::None => false,
            Self::One(key) => key.digest == *digest,
            Self::Several(keys) => among(keys, digest, now_secs).is_some(),
        }
    }

    /// The owner of this key, which is now used, if it is among them and has not ended.
    pub(super) fn find(
        &mut self,
        agent: AgentId,
        digest: &KeyDigest,
        now_secs: impl Fn() -> u64,
    ) -> Option<KeyOwner> {
        let (origin, signer, tenants, is_used) = match self {
            Self::None => return None,
            Self::One(key) if key.digest != *digest => return None,
            Self::One(key) => (&key.origin, key.signer, &None, &mut key.is_used),
            Self::Several(keys) => {
                let (key, is_used) = among(keys, digest, now_secs)?;
                (&key.origin, key.signer, &key.tenants, is_used)
            }
        };
        *is_used = true;
        Some(KeyOwner { agent, declared_origin: origin.clone(), signer, tenants: tenants.clone() })
    }

    /// Adds the keys that were used since this was asked last.
    pub(super) fn take_used(&mut self, used: &mut Vec<KeyDigest>) {
        let mut take = |digest, is_used: &mut bool| used.extend(mem::take(is_used).then_some(digest));
        match self {
            Self::None => {}
            Self::One(key) => take(key.digest, &mut key.is_used),
            Self::Several(keys) => keys.iter_mut().for_each(|(key, is_used)| take(key.digest, is_used)),
        }
    }
}

fn among<'a>(
    keys: &'a mut [(HeldKey, bool)],
    digest: &KeyDigest,
    now_secs: impl Fn() -> u64,
) -> Option<&'a mut (HeldKey, bool)> {
    let kept = keys.iter_mut().find(|(key, _)| key.digest == *digest);
    kept.filter(|(key, _)| key.ends.is_none() || key.is_live(now_secs()))
}

#[cfg(test)]
mod tests {
    use super::Keys;

    /// A digest, an origin, and where a signer leaves room the flag and that there are others.
    #[test]
    fn that_an_agent_may_have_several_keys_with_days_costs_one_with_a_single_key_no_byte() {
        assert_eq!(size_of::<Keys>(), 72);
    }
}
