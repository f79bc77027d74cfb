//! The embedded store in memory: each agent's keys and windows, and the agent that a digest belongs to.
//!
//! An agent's slot is the one place where its current keys are decided; the index by digest leads to the slot. A slot with a
//! key is never removed. Everything is sharded, so that no lock is shared by all requests; a slot is locked after the
//! shard that leads to it. Must not know the file.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::domain::{AgentId, KeyDigest, Quota, Verdict, Window};
use crate::ports::{Admission, KeyOwner, Scope};
use crate::sharded::{Hashed, Shards, Table};
use crate::store::embedded::keys::Keys;

/// So many that one of them is swept or grows in no time.
pub(super) const SHARDS: usize = 256;

/// The agents that have a key or a window that matters.
#[derive(Debug, Default)]
pub(super) struct Book {
    slots: Shards<Table<Hashed<AgentId>, SharedSlot>, SHARDS>,
    index: Shards<Table<HalfDigest, SharedSlot>, SHARDS>,
}

/// The first half of a digest, by its own hash: enough to find the slot, where the whole digest is compared.
type HalfDigest = Hashed<u64>;

type SharedSlot = Arc<Mutex<Slot>>;

#[derive(Debug)]
struct Slot {
    agent: AgentId,
    keys: Keys,
    windows: Vec<ScopeWindow>,
}

#[derive(Debug)]
struct ScopeWindow {
    scope: Scope,
    /// The width that was last asked for, so that a sweep knows when the window is idle.
    width_micros: u64,
    window: Window,
}

impl Book {
    /// The owner of the key with this digest, if it is current. The wall clock is asked for a key with an end alone.
    pub(super) fn find(&self, digest: &KeyDigest, now_secs: impl Fn() -> u64) -> Option<KeyOwner> {
        let half = half(digest);
        let shard = self.index.of(&half).lock();
        let mut slot = shard.get(&half)?.lock();
        let agent = slot.agent;
        slot.keys.find(agent, digest, now_secs)
    }

    /// True if the agent has a key that has not ended and that no other has replaced.
    pub(super) fn has_current(&self, agent: AgentId, now_secs: u64) -> bool {
        let agent = self.slots.hashed(agent);
        self.slots.of(&agent).lock().get(&agent).is_some_and(|slot| slot.lock().keys.has_current(now_secs))
    }

    /// The agent's keys that were used since this or [`Self::sweep`] told it last.
    pub(super) fn take_used(&self, agent: AgentId) -> Vec<KeyDigest> {
        let (agent, mut used) = (self.slots.hashed(agent), Vec::new());
        if let Some(slot) = self.slots.of(&agent).lock().get(&agent) {
            slot.lock().keys.take_used(&mut used);
        }
        used
    }

    /// Admits on the strength of a key. Nothing is made for a key that is not known.
    pub(super) fn admit_by_key(
        &self,
        agent: AgentId,
        scope: &Scope,
        quota: Quota,
        digest: &KeyDigest,
        (now_micros, now_secs): (u64, impl Fn() -> u64),
    ) -> Admission {
        let half = half(digest);
        let shard = self.index.of(&half).lock();
        let Some(mut slot) = shard.get(&half).map(|slot| slot.lock()) else { return Admission::KeyRevoked };
        if !slot.keys.has(digest, now_secs) || slot.agent != agent {
            return Admission::KeyRevoked;
        }
        slot.window(scope, quota).admit(quota, now_micros).into()
    }

    /// Takes a place in the agent's window. Also returns the time to give to [`Self::withdraw`].
    pub(super) fn take_place(
        &self,
        agent: AgentId,
        scope: &Scope,
        quota: Quota,
        now_micros: u64,
    ) -> (Verdict, u64) {
        let hashed = self.slots.hashed(agent);
        let mut shard = self.slots.of(&hashed).lock();
        let mut slot = shard.entry(hashed).or_insert_with(|| Slot::of(agent)).lock();
        let window = slot.window(scope, quota);
        let at_micros = window.clamp(now_micros);
        (window.admit(quota, now_micros), at_micros)
    }

    /// Gives back a place that was taken at `at_micros`. The sweep removes a window that is left empty.
    pub(super) fn withdraw(&self, agent: AgentId, scope: &Scope, at_micros: u64) {
        let agent = self.slots.hashed(agent);
        let shard = self.slots.of(&agent).lock();
        let Some(mut slot) = shard.get(&agent).map(|slot| slot.lock()) else { return };
        if let Some(counted) = slot.windows.iter_mut().find(|counted| counted.scope == *scope) {
            counted.window.withdraw(at_micros);
        }
    }

    /// Makes these the agent's keys. Afterwards nobody is admitted with another. A key that is current before and after is found
    /// all the while.
    pub(super) fn set_keys(&self, agent: AgentId, keys: Keys) {
        let hashed = self.slots.hashed(agent);
        let added = keys.digests();
        let mut shard = self.slots.of(&hashed).lock();
        let shared = Arc::clone(shard.entry(hashed).or_insert_with(|| Slot::of(agent)));
        let mut slot = shared.lock();
        let replaced = std::mem::replace(&mut slot.keys, keys).digests();
        if slot.is_vacant() {
            shard.remove(&hashed);
        }
        drop((slot, shard));
        for digest in replaced.iter().filter(|digest| !added.contains(digest)) {
            let half = half(digest);
            let mut index = self.index.of(&half).lock();
            if index.get(&half).is_some_and(|other| Arc::ptr_eq(other, &shared)) {
                index.remove(&half);
            }
        }
        for digest in added.iter().filter(|digest| !replaced.contains(digest)) {
            let half = half(digest);
            self.index.of(&half).lock().insert(half, Arc::clone(&shared));
        }
    }

    /// Forgets the idle windows of one shard, and the agents that nothing is known of any more. Adds its keys that were used.
    pub(super) fn sweep(&self, shard: usize, now_micros: u64, used: &mut Vec<KeyDigest>) {
        let Some(shard) = self.slots.iter().nth(shard) else { return };
        let mut shard = shard.lock();
        shard.retain(|_, slot| {
            let mut slot = slot.lock();
            slot.keys.take_used(used);
            slot.windows.retain(|counted| !counted.window.is_idle(counted.width_micros, now_micros));
            slot.windows.shrink_to_fit();
            !slot.is_vacant()
        });
        if shard.capacity() > 4 * shard.len() + 64 {
            shard.shrink_to_fit();
        }
    }

    /// How many agents have a slot.
    pub(super) fn len(&self) -> usize {
        self.slots.entries()
    }
}

impl Slot {
    fn of(agent: AgentId) -> SharedSlot {
        Arc::new(Mutex::new(Self { agent, keys: Keys::None, windows: Vec::new() }))
    }

    #[expect(clippy::indexing_slicing, reason = "the place was found or made one line above")]
    fn window(&mut self, scope: &Scope, quota: Quota) -> &mut Window {
        let place = self.windows.iter().position(|counted| counted.scope == *scope).unwrap_or_else(|| {
            self.windows.reserve_exact(1);
            let (scope, window) = (scope.clone(), Window::default());
            self.windows.push(ScopeWindow { scope, width_micros: quota.window_micros, window });
            self.windows.len() - 1
        });
        let counted = &mut self.windows[place];
        counted.width_micros = quota.window_micros;
        &mut counted.window
    }

    /// True when forgetting the slot changes nothing.
    fn is_vacant(&self) -> bool {
        matches!(self.keys, Keys::None) && self.windows.is_empty()
    }
}

fn half(digest: &KeyDigest) -> HalfDigest {
    let [hash, rest, ..] = digest.words();
    Hashed { hash, key: rest }
}

#[cfg(test)]
mod tests {
    use super::{Book, Mutex, Slot, Table};

    impl Book {
        /// How many agents have a slot, and how many digests are listed.
        pub(in crate::store::embedded) fn census(&self) -> (usize, usize) {
            (self.len(), self.index.entries())
        }

        /// The bytes of the slots and the index, their tables' free places included, but not the windows and origins.
        pub(in crate::store::embedded) fn table_bytes(&self) -> usize {
            // A table has 8 places for 7 entries, and a byte of its own for each place.
            fn table<K, V>(entries: &Table<K, V>) -> usize {
                entries.capacity() * 8 / 7 * (size_of::<(K, V)>() + 1)
            }
            let slots = self.slots.iter().map(|shard| {
                let shard = shard.lock();
                table(&shard) + shard.len() * (size_of::<Mutex<Slot>>() + 2 * size_of::<usize>())
            });
            let index = self.index.iter().map(|shard| table(&shard.lock()));
            slots.sum::<usize>() + index.sum::<usize>()
        }
    }
}
