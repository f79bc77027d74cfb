//! Changes of the keys that an agent holds, as both stores make them.

use crate::domain::{HeldKey, KeyDays, KeyName, held_key::day_of};
use crate::ports::{KeyChange, KeyChanged, MadeKey, NewKey};

/// How many replaced keys an agent has at most. Of more the oldest end at once.
pub(super) const REPLACED_MAX: usize = 64;

/// Changes the keys at this moment of the store's clock, and returns the one that was made. Those that have ended go. Nothing is
/// changed where it is not done.
pub(super) fn change(
    keys: &mut Vec<HeldKey>,
    change: &KeyChange,
    now_secs: u64,
) -> (KeyChanged, Option<MadeKey>) {
    let changed = change_live(keys, change, now_secs);
    let is_made = changed == KeyChanged::Done && !matches!(change, KeyChange::Revoke(_));
    let made = keys.last().filter(|_| is_made);
    (changed, made.map(|key| MadeKey { name: key.name.clone(), ends: key.ends }))
}

fn change_live(keys: &mut Vec<HeldKey>, change: &KeyChange, now_secs: u64) -> KeyChanged {
    let mut live: Vec<HeldKey> = keys.iter().filter(|key| key.is_live(now_secs)).cloned().collect();
    match change {
        KeyChange::Revoke(None) => live.clear(),
        KeyChange::Revoke(Some(name)) => {
            let all = live.len();
            live.retain(|key| key.name.as_ref() != Some(name));
            if all > 0 && live.len() == all {
                return KeyChanged::NoSuchKey;
            }
        }
        KeyChange::Issue(new) => {
            if !has_room(&live, new, new.terms.name.as_ref()) {
                return KeyChanged::KeyExists;
            }
            live.push(held(new, new.terms.name.clone(), now_secs));
        }
        KeyChange::Rotate(new) => {
            let only = Some(current(&live).collect::<Vec<_>>()).filter(|current| current.len() == 1);
            let only = only.and_then(|only| only.first()?.name.clone());
            let name = new.terms.name.clone().or(only);
            let replaces_all = new.per_agent_max == 1;
            let is_there = current(&live).any(|key| key.name == name);
            if !replaces_all && !is_there && current(&live).next().is_some() {
                return KeyChanged::NoSuchKey;
            }
            let grace_ends = now_secs.saturating_add(new.terms.grace_secs);
            for key in live.iter_mut().filter(|key| replaces_all || key.name == name) {
                key.is_replaced = true;
                key.ends = Some(key.ends.map_or(grace_ends, |ends| ends.min(grace_ends)));
            }
            live.retain(|key| key.is_live(now_secs));
            let replaced = live.iter().filter(|key| key.is_replaced).count();
            let mut too_many = replaced.saturating_sub(REPLACED_MAX);
            live.retain(|key| {
                let stays = !key.is_replaced || too_many == 0;
                too_many -= usize::from(!stays);
                stays
            });
            live.push(held(new, name, now_secs));
        }
    }
    *keys = live;
    KeyChanged::Done
}

/// The keys that no other has replaced.
fn current(keys: &[HeldKey]) -> impl Iterator<Item = &HeldKey> {
    keys.iter().filter(|key| !key.is_replaced)
}

fn has_room(keys: &[HeldKey], new: &NewKey, name: Option<&KeyName>) -> bool {
    let max = usize::try_from(new.per_agent_max).unwrap_or(usize::MAX);
    current(keys).count() < max && current(keys).all(|key| key.name.as_ref() != name)
}

fn held(new: &NewKey, name: Option<KeyName>, now_secs: u64) -> HeldKey {
    HeldKey {
        ends: new.terms.expires_in_secs.map(|secs| now_secs.saturating_add(secs)),
        name,
        tenants: new.terms.tenants.clone(),
        days: Some(KeyDays { made: day_of(now_secs), used: None }),
        ..HeldKey::plain(new.digest, new.origin.clone(), Some(new.signer))
    }
}
