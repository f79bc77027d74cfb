//! An agent's keys in memory. One without terms, which nearly all are, takes no more room than it needs.

use alloy::primitives::Address;

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::KeyDigest;
use crate::domain::endpoint::WebOrigin;
use crate::domain::held_key::HeldKey;
use crate::ports::store::KeyOwner;

/// The keys of one agent.
#[derive(Debug, Clone)]
pub(super) enum Keys {
    /// It has none.
    None,
    /// One without terms.
    One(PlainKey),
    /// Several, or one with terms; never empty.
    Several(Box<[HeldKey]>),
}

/// A key without terms.
#[derive(Debug, Clone)]
pub(super) struct PlainKey {
    digest: KeyDigest,
    origin: Option<WebOrigin>,
    signer: Option<Address>,
}

impl Keys {
    pub(super) fn of(mut keys: Vec<HeldKey>) -> Self {
        match (keys.len(), keys.pop()) {
            (_, None) => Self::None,
            (1, Some(key)) if key.is_plain() => {
                Self::One(PlainKey { digest: key.digest, origin: key.origin, signer: key.signer })
            }
            (_, Some(last)) => {
                keys.push(last);
                Self::Several(keys.into())
            }
        }
    }

    pub(super) fn to_vec(&self) -> Vec<HeldKey> {
        match self {
            Self::None => Vec::new(),
            Self::One(key) => vec![HeldKey::plain(key.digest, key.origin.clone(), key.signer)],
            Self::Several(keys) => keys.to_vec(),
        }
    }

    pub(super) fn digests(&self) -> Vec<KeyDigest> {
        match self {
            Self::None => Vec::new(),
            Self::One(key) => vec![key.digest],
            Self::Several(keys) => keys.iter().map(|key| key.digest).collect(),
        }
    }

    /// True if this key is among them and has not ended.
    pub(super) fn has(&self, digest: &KeyDigest, now_secs: impl Fn() -> u64) -> bool {
        match self {
            Self::None => false,
            Self::One(key) => key.digest == *digest,
            Self::Several(keys) => among(keys, digest, now_secs).is_some(),
        }
    }

    /// The owner of this key, if it is among them and has not ended.
    pub(super) fn owner(
        &self,
        agent: AgentId,
        digest: &KeyDigest,
        now_secs: impl Fn() -> u64,
    ) -> Option<KeyOwner> {
        let (origin, signer, tenants) = match self {
            Self::None => return None,
            Self::One(key) if key.digest != *digest => return None,
            Self::One(key) => (&key.origin, key.signer, &None),
            Self::Several(keys) => {
                let key = among(keys, digest, now_secs)?;
                (&key.origin, key.signer, &key.tenants)
            }
        };
        Some(KeyOwner { agent, declared_origin: origin.clone(), signer, tenants: tenants.clone() })
    }
}

fn among<'a>(keys: &'a [HeldKey], digest: &KeyDigest, now_secs: impl Fn() -> u64) -> Option<&'a HeldKey> {
    keys.iter().find(|key| key.digest == *digest).filter(|key| key.ends.is_none() || key.is_live(now_secs()))
}

#[cfg(test)]
mod tests {
    use super::{Keys, PlainKey};

    #[test]
    fn that_an_agent_may_have_several_keys_costs_one_with_a_single_key_no_byte() {
        assert_eq!(size_of::<Keys>(), size_of::<Option<PlainKey>>());
    }
}
