//! Memory for bodies that are held until they are known to be right: bounded in the process, and shared among agents and clients by the law
//! of slots ([`in_flight`](crate::gateway::in_flight)).

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::gateway::{counters::SiteCounters, failure::Failure, in_flight::Caller};
use crate::sharded::SHARE;

/// The most that all of them take, in bytes.
const HELD_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// The memory that a body of unknown length begins with, in bytes.
const UNKNOWN_BYTES: u64 = 16 * 1024;

/// The memory that is taken.
#[derive(Default)]
pub(super) struct Memory(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: u64,
    /// Bytes by caller; without any it has no entry.
    holders: HashMap<Caller, u64>,
}

/// Memory for one body, given back when it is dropped.
pub(super) struct HeldBytes {
    pub(super) memory: Arc<Memory>,
    holder: Caller,
    counters: Arc<SiteCounters>,
    bytes: u64,
}

impl HeldBytes {
    /// Memory for a body of this holder's that announces so many bytes.
    pub(super) fn new(
        memory: &Arc<Memory>,
        holder: Caller,
        counters: &Arc<SiteCounters>,
        announced: Option<u64>,
    ) -> Result<Self, Failure> {
        let (memory, counters) = (Arc::clone(memory), Arc::clone(counters));
        let mut held = Self { memory, holder, counters, bytes: 0 };
        held.grow_to(announced.unwrap_or(UNKNOWN_BYTES))?;
        Ok(held)
    }

    /// Takes more memory if the body takes more than it has.
    pub(super) fn grow_to(&mut self, bytes: u64) -> Result<(), Failure> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let mut taken = self.memory.0.lock();
        let all = taken.all.saturating_add(more);
        let own = taken.holders.get(&self.holder).map_or(more, |bytes| bytes.saturating_add(more));
        if own > HELD_BYTES_MAX.saturating_sub(all).saturating_mul(SHARE.into()) {
            drop(taken);
            self.counters.overloaded("bodies");
            return Err(Failure::Overloaded);
        }
        taken.all = all;
        taken.holders.insert(self.holder, own);
        drop(taken);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let mut taken = self.memory.0.lock();
        taken.all = taken.all.saturating_sub(self.bytes);
        if let Some(own) = taken.holders.get_mut(&self.holder) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                taken.holders.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alloy::primitives::U256;

    use super::{Caller, Failure, HELD_BYTES_MAX, HeldBytes, Memory, SiteCounters, UNKNOWN_BYTES};
    use crate::domain::AgentId;
    use crate::telemetry::Metrics;

    const MIB: u64 = 1024 * 1024;

    impl Memory {
        pub(in crate::gateway) fn taken(&self) -> u64 {
            self.0.lock().all
        }
    }

    impl HeldBytes {
        /// Bytes in a memory of its own.
        pub(in crate::gateway) fn unshared() -> Self {
            let counters = Arc::new(SiteCounters::new(&Metrics::new().unwrap(), &"acme".into()));
            Self {
                memory: Arc::default(),
                holder: Caller::Agent(AgentId::new(U256::ONE)),
                counters,
                bytes: 0,
            }
        }
    }

    // threat: Huge or costly heads and bodies
    #[test]
    fn one_agent_gets_three_quarters_and_what_is_dropped_is_there_again() {
        let metrics = Metrics::new().unwrap();
        let (memory, counters) =
            (Arc::<Memory>::default(), Arc::new(SiteCounters::new(&metrics, &"acme".into())));
        let take = |agent: u64, bytes| {
            HeldBytes::new(&memory, Caller::Agent(AgentId::new(U256::from(agent))), &counters, Some(bytes))
        };
        let mut held: Vec<_> = (0..12).map(|_| take(1, 8 * MIB).unwrap()).collect();
        assert_eq!(take(1, 1).err(), Some(Failure::Overloaded));
        let mut other = take(2, 8 * MIB).unwrap();
        assert_eq!(other.grow_to(24 * MIB + 1), Err(Failure::Overloaded), "a body that grows is bounded too");
        other.grow_to(24 * MIB).unwrap();
        assert_eq!(take(3, u64::MAX).err(), Some(Failure::Overloaded));
        assert_eq!(metrics.overload.with_label_values(&["acme", "bodies"]).get(), 3);
        held.pop();
        drop(other);
        take(1, 8 * MIB).unwrap();
        drop(held);
        let taken = memory.0.lock();
        assert_eq!((taken.all, taken.holders.len()), (0, 0));
    }

    #[test]
    fn a_body_of_unknown_length_takes_room_at_once_and_more_as_it_grows() {
        let HeldBytes { memory, holder, counters, .. } = &HeldBytes::unshared();
        let mut held = HeldBytes::new(memory, *holder, counters, None).unwrap();
        for (bytes, expected) in [(1, UNKNOWN_BYTES), (2 * UNKNOWN_BYTES, 2 * UNKNOWN_BYTES)] {
            held.grow_to(bytes).unwrap();
            assert_eq!(memory.taken(), expected);
        }
        assert_eq!(held.grow_to(HELD_BYTES_MAX / 4 * 3 + 1), Err(Failure::Overloaded));
    }
}
