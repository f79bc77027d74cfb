//! Every state that a window can reach with limits up to 3 in a width of 3 ticks, however long it runs: states that differ
//! only in the time of day are one, so that there are finitely many, and each is left in every possible way.

use std::collections::BTreeSet;

use crate::domain::window::{Verdict, Window};
use crate::domain::{window::Quota, window::tests::model::Model};

const WIDTH: u64 = 3;
const LIMITS: [u32; 3] = [1, 2, 3];

/// How far time passes between two requests: to the edge of the window and beyond.
const PASSES: [u64; 6] = [0, 1, 2, 3, 4, 7];

/// The time in each state, far enough from 0 for everything that is remembered.
const NOW: u64 = 1_000;

const fn quota(limit: u32) -> Quota {
    Quota { limit, window_micros: WIDTH }
}

/// Visits every state that can be reached from the first, and says how many there are.
fn explore<S: Clone + Ord>(first: S, mut leave: impl FnMut(&S) -> Vec<S>) -> usize {
    let mut seen = BTreeSet::from([first.clone()]);
    let mut waiting = vec![first];
    while let Some(state) = waiting.pop() {
        for next in leave(&state) {
            if seen.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    seen.len()
}

/// A window in the model, and what has really happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    /// By the clock, which shows [`NOW`].
    model: Model,
    /// How long ago requests were really admitted, while that is less than a width.
    ages: Vec<u64>,
}

impl World {
    /// Real time passes, then the clock is set back, and what is idle may be forgotten.
    fn later(&self, pass: u64, back: u64) -> Vec<Self> {
        let ages = self.ages.iter().map(|age| age + pass).filter(|age| *age < WIDTH).collect();
        // Relative to the new time.
        let accepted = self.model.accepted.iter().map(|time| time + back - pass).collect();
        let kept = Self { model: Model { accepted }, ages };
        // Redis forgets by the clock before it is set back, or later.
        let may_forget = self.model.is_idle(WIDTH, NOW + pass);
        let forgotten = may_forget.then(|| Self { model: Model::default(), ..kept.clone() });
        std::iter::once(kept).chain(forgotten).collect()
    }
}

/// Explores the model under these steps of the clock, and holds its promises in every state.
fn promises_hold(steps_back: &[u64]) -> usize {
    let mut refused = 0;
    let states = explore(World::default(), |world| {
        let times = PASSES.iter().flat_map(|pass| steps_back.iter().map(move |back| (*pass, *back)));
        let worlds = times.flat_map(|(pass, back)| world.later(pass, back));
        let asked = worlds.flat_map(|world| LIMITS.map(|limit| (world.clone(), limit)));
        asked
            .map(|(mut world, limit)| {
                let (next, verdict) = world.model.step(quota(limit), NOW);
                let really = u32::try_from(world.ages.len()).unwrap();
                match verdict {
                    Verdict::Admitted { remaining } => {
                        assert!(
                            really < limit,
                            "{really} of {limit} were admitted within a width: {world:?}"
                        );
                        assert!(remaining < limit - really);
                        world.ages.push(0);
                    }
                    Verdict::Limited { retry_after_micros: wait } => {
                        refused += 1;
                        if *steps_back == [0] {
                            assert!(really >= limit, "refused with {really} of {limit}: {world:?}");
                        }
                        assert!((1..=2 * WIDTH).contains(&wait));
                        for (at, is_admitted) in [(NOW + wait, true), (NOW + wait - 1, false)] {
                            let verdict = next.peek(quota(limit), at);
                            assert_eq!(matches!(verdict, Verdict::Admitted { .. }), is_admitted, "{world:?}");
                        }
                        // A refusal changes nothing; but the first request after a long step back moves the log.
                        let is_moved =
                            world.model.accepted.last().is_some_and(|newest| *newest > NOW + WIDTH);
                        assert_eq!(next == world.model, !is_moved, "{world:?}");
                    }
                }
                world.model = next;
                world
            })
            .collect()
    });
    assert!(refused > 0);
    states
}

#[test]
fn never_more_than_the_limit_in_any_width_and_no_refusal_that_was_not_due() {
    let states = promises_hold(&[0]);
    assert!(states > 20, "{states}");
}

#[test]
fn a_clock_that_is_set_back_by_any_step_admits_nobody_early() {
    let states = promises_hold(&[0, 1, 2, 3, 4, 5, 9]);
    assert!(states > 200, "{states}");
}

/// The times that a window holds and those of the model, which may keep some that no longer matter.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    times: Vec<u64>,
    model: Model,
}

impl Held {
    fn window(&self) -> Window {
        let mut window = Window::default();
        for time in &self.times {
            window.push(u32::MAX, *time);
        }
        window
    }
}

/// How much room there is for each limit, now and later.
fn room(window: &Window, now: u64) -> Vec<u32> {
    let times = PASSES.map(|pass| now + pass);
    times.iter().flat_map(|at| LIMITS.map(|limit| window.remaining(quota(limit), *at))).collect()
}

/// Asks a window that holds this, after time has passed, and says what it holds then.
fn ask(held: &Held, pass: u64, limit: u32) -> (Held, Verdict) {
    let (quota, now, before) = (quota(limit), NOW + pass, held.window());
    let (model, expected) = held.model.step(quota, now);
    assert_eq!(before.peek(quota, now), expected, "{held:?}");
    let mut after = before.clone();
    assert_eq!(after.admit(quota, now), expected, "{held:?} after {pass} under {limit}");

    // Neither a refusal nor an admission that is taken back changes anything.
    let mut unchanged = after.clone();
    if let Verdict::Admitted { .. } = expected {
        assert_eq!(after.times(), model.accepted, "{held:?}");
        unchanged.withdraw(now);
    }
    assert_eq!(room(&unchanged, now), room(&before, now), "{held:?} after {pass} under {limit}");

    // A time before the newest one counts as that.
    let newest = after.clamp(0);
    for at in [0, newest.saturating_sub(1)] {
        assert_eq!(after.clone().admit(quota, at), model.peek(quota, newest), "{held:?}");
    }
    let times = after.times().iter().map(|time| time - pass).collect();
    (Held { times, model: model.shifted(now, NOW) }, expected)
}

#[test]
fn the_window_does_what_the_model_does_in_every_state() {
    let mut refused = 0;
    let states = explore(Held::default(), |held| {
        let asks = PASSES.iter().flat_map(|pass| LIMITS.map(|limit| ask(held, *pass, limit)));
        let asks: Vec<_> = asks.collect();
        refused += asks.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Limited { .. })).count();
        asks.into_iter().map(|(next, _)| next).collect()
    });
    assert!(states >= 10 && refused > 0, "{states}");
}
