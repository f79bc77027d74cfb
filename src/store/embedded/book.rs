//! What the embedded store keeps in memory: each agent's key and windows, and whose key a digest is.
//!
//! An agent's slot is the one place where its current key is decided; the index by digest only says where to look.
//! Everything is sharded, so that no lock is shared by all requests. Must not know the file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::KeyDigest;
use crate::domain::endpoint::WebOrigin;
use crate::domain::nonce::Nonce;
use crate::domain::quota::{Quota, RetryAfter};
use crate::domain::window::{Verdict, Window};
use crate::ports::store::{Admission, KeyOwner, Scope};
use crate::sharded::Shards;

/// So many that one of them is swept or grows in no time.
pub(super) const SHARDS: usize = 256;

/// The agents that have a key or a window that matters.
#[derive(Debug)]
pub(super) struct Book {
    slots: Shards<Shard, SHARDS>,
    index: Shards<HashMap<HalfDigest, AgentId>, SHARDS>,
}

/// The first half of a digest: enough to find the slot, where the whole digest is compared.
type HalfDigest = [u8; 16];

#[derive(Debug, Default)]
struct Shard {
    slots: HashMap<AgentId, Box<Slot>>,
    /// Nonces whose use is being written at this moment.
    in_flight: HashSet<(AgentId, Nonce)>,
}

#[derive(Debug, Default)]
struct Slot {
    key: Option<CurrentKey>,
    windows: Vec<ScopeWindow>,
}

/// An agent's key as it counts now.
#[derive(Debug, Clone)]
pub(super) struct CurrentKey {
    pub(super) digest: KeyDigest,
    pub(super) origin: Option<WebOrigin>,
}

#[derive(Debug)]
struct ScopeWindow {
    scope: Scope,
    /// The width that was last asked for, so that a sweep knows when the window is idle.
    width_micros: u64,
    window: Window,
}

/// What [`Book::reserve`] says.
#[derive(Debug)]
pub(super) enum Reserved {
    /// The place is held; so many more would be.
    Place(Reservation, u32),
    /// The window is full.
    Limited(RetryAfter),
    /// The same nonce is being used by a twin of this request.
    InFlight,
}

/// A place in a window and a nonce, held while the nonce's use is being written. Dropping it gives both back, whoever
/// drops it; [`Self::keep`] leaves the place taken.
#[derive(Debug)]
pub(super) struct Reservation {
    book: Arc<Book>,
    pub(super) agent: AgentId,
    nonce: Nonce,
    scope: Scope,
    at_micros: u64,
    kept: bool,
}

impl Reservation {
    /// The nonce's use is durable: the admission stands.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut shard = self.book.slots.of(&self.agent).lock();
        shard.in_flight.remove(&(self.agent, self.nonce));
        if !self.kept {
            shard.withdraw(self.agent, &self.scope, self.at_micros);
        }
    }
}

impl Book {
    pub(super) fn new() -> Self {
        Self { slots: Shards::new(), index: Shards::new() }
    }

    /// What the key with this digest was minted for, if it is current.
    pub(super) fn find(&self, digest: &KeyDigest) -> Option<KeyOwner> {
        let half = half(digest);
        let agent = *self.index.of(&half).lock().get(&half)?;
        let shard = self.slots.of(&agent).lock();
        let key = shard.slots.get(&agent)?.key.as_ref()?;
        (key.digest == *digest).then(|| KeyOwner { agent, declared_origin: key.origin.clone() })
    }

    pub(super) fn has_key(&self, agent: AgentId) -> bool {
        self.slots.of(&agent).lock().slots.get(&agent).is_some_and(|slot| slot.key.is_some())
    }

    /// Admits on the strength of a key: one lock, and nothing is made for an agent that is not known.
    pub(super) fn admit_by_key(
        &self,
        agent: AgentId,
        scope: &Scope,
        quota: Quota,
        digest: &KeyDigest,
        now_micros: u64,
    ) -> Admission {
        let mut shard = self.slots.of(&agent).lock();
        let Some(slot) = shard.slots.get_mut(&agent) else { return Admission::KeyRevoked };
        if slot.key.as_ref().map(|key| &key.digest) != Some(digest) {
            return Admission::KeyRevoked;
        }
        match slot.window(scope, quota).admit(quota, now_micros) {
            Verdict::Admitted { remaining } => Admission::Admitted { remaining },
            Verdict::Limited { retry_after_micros } => {
                Admission::Limited { retry_after: RetryAfter::from_micros(retry_after_micros) }
            }
        }
    }

    /// Holds a place in the agent's window for an admission that spends `nonce`.
    pub(super) fn reserve(
        self: &Arc<Self>,
        agent: AgentId,
        scope: &Scope,
        quota: Quota,
        nonce: Nonce,
        now_micros: u64,
    ) -> Reserved {
        let mut shard = self.slots.of(&agent).lock();
        if shard.in_flight.contains(&(agent, nonce)) {
            return Reserved::InFlight;
        }
        let window = shard.slots.entry(agent).or_default().window(scope, quota);
        let at_micros = window.clamp(now_micros);
        match window.admit(quota, now_micros) {
            Verdict::Admitted { remaining } => {
                shard.in_flight.insert((agent, nonce));
                let book = Arc::clone(self);
                let scope = scope.clone();
                Reserved::Place(Reservation { book, agent, nonce, scope, at_micros, kept: false }, remaining)
            }
            Verdict::Limited { retry_after_micros } => {
                Reserved::Limited(RetryAfter::from_micros(retry_after_micros))
            }
        }
    }

    /// Makes this the agent's key, or leaves it without one. Afterwards nobody is admitted with another.
    pub(super) fn set_key(&self, agent: AgentId, key: Option<CurrentKey>) {
        let added = key.as_ref().map(|key| half(&key.digest));
        let replaced = self.slots.of(&agent).lock().set_key(agent, key);
        if let Some(replaced) = replaced.as_ref().map(half) {
            let mut index = self.index.of(&replaced).lock();
            if index.get(&replaced) == Some(&agent) {
                index.remove(&replaced);
            }
        }
        if let Some(added) = added {
            self.index.of(&added).lock().insert(added, agent);
        }
    }

    /// Makes these the only keys. Windows stay.
    pub(super) fn replace_keys(&self, keys: impl IntoIterator<Item = (AgentId, CurrentKey)>) {
        for shard in self.slots.iter() {
            let mut shard = shard.lock();
            shard.slots.retain(|_, slot| {
                slot.key = None;
                !slot.is_vacant()
            });
        }
        for shard in self.index.iter() {
            shard.lock().clear();
        }
        for (agent, key) in keys {
            self.set_key(agent, Some(key));
        }
    }

    /// Forgets the idle windows of one shard, and the agents that nothing is known of any more.
    pub(super) fn sweep(&self, shard: usize, now_micros: u64) {
        let Some(shard) = self.slots.iter().nth(shard) else { return };
        let mut shard = shard.lock();
        shard.slots.retain(|_, slot| {
            slot.windows.retain(|counted| !counted.window.is_idle(counted.width_micros, now_micros));
            if slot.windows.is_empty() {
                slot.windows = Vec::new();
            }
            !slot.is_vacant()
        });
        if shard.slots.capacity() > 4 * shard.slots.len() + 64 {
            shard.slots.shrink_to_fit();
        }
    }

    /// How many agents have a slot.
    pub(super) fn len(&self) -> usize {
        self.slots.iter().map(|shard| shard.lock().slots.len()).sum()
    }

    /// How many agents have a slot, how many digests are listed, and how many nonces are in flight.
    #[cfg(test)]
    pub(super) fn census(&self) -> (usize, usize, usize) {
        let digests = self.index.iter().map(|shard| shard.lock().len()).sum();
        let in_flight = self.slots.iter().map(|shard| shard.lock().in_flight.len()).sum();
        (self.len(), digests, in_flight)
    }

    /// What the slots and the index take, their tables' free places included, but not the windows and origins.
    #[cfg(test)]
    pub(super) fn table_bytes(&self) -> usize {
        // A table has 8 places for 7 entries, and a byte of its own for each place.
        fn table<K, V>(entries: &HashMap<K, V>) -> usize {
            entries.capacity() * 8 / 7 * (size_of::<(K, V)>() + 1)
        }
        let slots = self.slots.iter().map(|shard| {
            let shard = shard.lock();
            table(&shard.slots) + shard.slots.len() * size_of::<Slot>()
        });
        let index = self.index.iter().map(|shard| table(&shard.lock()));
        slots.sum::<usize>() + index.sum::<usize>()
    }
}

impl Shard {
    /// Says which digest it replaced.
    fn set_key(&mut self, agent: AgentId, key: Option<CurrentKey>) -> Option<KeyDigest> {
        let slot = match (&key, self.slots.get_mut(&agent)) {
            (_, Some(slot)) => slot,
            (Some(_), None) => self.slots.entry(agent).or_default(),
            (None, None) => return None,
        };
        let replaced = std::mem::replace(&mut slot.key, key).map(|key| key.digest);
        if slot.is_vacant() {
            self.slots.remove(&agent);
        }
        replaced
    }

    fn withdraw(&mut self, agent: AgentId, scope: &Scope, at_micros: u64) {
        let Some(slot) = self.slots.get_mut(&agent) else { return };
        if let Some(counted) = slot.windows.iter_mut().find(|counted| counted.scope == *scope) {
            counted.window.withdraw(at_micros);
        }
        slot.windows.retain(|counted| !counted.window.is_empty());
        if slot.is_vacant() {
            self.slots.remove(&agent);
        }
    }
}

impl Slot {
    #[expect(clippy::indexing_slicing, reason = "the place was found or made one line above")]
    fn window(&mut self, scope: &Scope, quota: Quota) -> &mut Window {
        let place = self.windows.iter().position(|counted| counted.scope == *scope).unwrap_or_else(|| {
            self.windows.reserve_exact(1);
            self.windows.push(ScopeWindow {
                scope: scope.clone(),
                width_micros: quota.window_micros,
                window: Window::default(),
            });
            self.windows.len() - 1
        });
        let counted = &mut self.windows[place];
        counted.width_micros = quota.window_micros;
        &mut counted.window
    }

    /// True when forgetting the slot changes nothing.
    fn is_vacant(&self) -> bool {
        self.key.is_none() && self.windows.is_empty()
    }
}

fn half(digest: &KeyDigest) -> HalfDigest {
    digest.to_bytes().first_chunk().copied().unwrap_or_default()
}
