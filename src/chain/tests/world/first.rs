//! Worlds that the model begins with.

use crate::chain::cache::Entry;
use crate::chain::tests::actions::{Action, Named};
use crate::chain::tests::world::{LIFETIMES, World};
use crate::ports::Parts;

impl World {
    /// The agent's profile is cached at the followed block, which is the head of all.
    pub(in crate::chain::tests) fn warm(named: Named) -> Self {
        let mut world = Self::new(named);
        for action in [
            Action::Grow { changes: true },
            Action::CatchUp { back_end: 0, with_logs: true },
            Action::CatchUp { back_end: 1, with_logs: true },
            Action::Poll { head: 0, logs: 0 },
            Action::BeginRead { back_end: 0 },
            Action::EndRead,
            Action::Tick,
        ] {
            world.step(action, None);
        }
        assert!(matches!(world.entry, Some(Entry::Read { is_followed: true, .. })) && world.broken.is_none());
        let entry = world.entry.as_ref().unwrap();
        assert!(
            world.status.serves(entry, Parts::Gate, &LIFETIMES, world.now_micros),
            "what was read of the followed chain serves for longer than an interval"
        );
        Self { ticks: 0, ..world }
    }

    /// The agent was read above the followed block.
    pub(in crate::chain::tests) fn above(named: Named) -> Self {
        let mut world = Self::warm(named);
        world.entry = None;
        for action in [
            Action::Grow { changes: false },
            Action::CatchUp { back_end: 0, with_logs: true },
            Action::BeginRead { back_end: 0 },
            Action::EndRead,
            Action::Tick,
        ] {
            world.step(action, None);
        }
        let entry = world.entry.as_ref().unwrap();
        assert!(world.status.serves(entry, Parts::Gate, &LIFETIMES, world.now_micros), "{world:?}");
        world
    }

    /// A log of the followed block, which is the head of one back end, has dropped the agent.
    pub(in crate::chain::tests) fn dropped(named: Named) -> Self {
        let mut world = Self::warm(named);
        for action in [
            Action::Grow { changes: true },
            Action::CatchUp { back_end: 0, with_logs: true },
            Action::Poll { head: 0, logs: 0 },
        ] {
            world.step(action, None);
        }
        assert!(matches!(world.entry, Some(Entry::Dropped { .. })));
        world
    }
}
