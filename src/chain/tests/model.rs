//! The promise as a model: all that can happen in small worlds, in every order.
//!
//! A world has one agent, whose state has a version, a chain that grows and is reorganized, and two back ends behind one
//! URL that each have some of it, logs perhaps later than their blocks. A log names the agent, its organization, its holder or nobody. Window, floor and status are the product's own; reads and polls take their answers from
//! either back end at each step. Checked in every state: nothing is served that is older than what was known when it was
//! asked for. Each mutant leaves out one rule, and must be found out.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::chain::tests::actions::{Action, Mutant, Named};
use crate::chain::tests::world::World;

const MUTANTS: [Mutant; 13] = [
    Mutant::ShownIsBelieved,
    Mutant::AnyAge,
    Mutant::OneBlockOlder,
    Mutant::KeepAfterDrop,
    Mutant::KeepAcrossRestart,
    Mutant::LogsWithoutProof,
    Mutant::NoOverlap,
    Mutant::NoDrops,
    Mutant::AnyForkIsFollowed,
    Mutant::KeepWhatIsLost,
    Mutant::LessIsARollback,
    Mutant::KeepInReorganization,
    Mutant::KeepOutOfTouch,
];

/// Visits all worlds that begin with this one; the first broken one, with what led to it.
fn search(first: &World, mutant: Option<Mutant>) -> (usize, Option<(&'static str, Vec<Action>)>) {
    let (hasher, steps_max) = (RandomState::new(), steps_max());
    let mut seen = HashSet::from([hasher.hash_one(first)]);
    let mut waiting = VecDeque::from([(first.clone(), Vec::new())]);
    while let Some((world, path)) = waiting.pop_front() {
        for action in world.actions() {
            let mut next = world.clone();
            next.step(action, mutant);
            let is_new = seen.insert(hasher.hash_one(&next));
            if let Some(why) = next.broken {
                let path = path.into_iter().chain([action]).collect();
                return (seen.len(), Some((why, path)));
            }
            if is_new && path.len() + 1 < steps_max {
                waiting.push_back((next, path.iter().copied().chain([action]).collect()));
            }
        }
    }
    (seen.len(), None)
}

/// How many actions lead to the farthest worlds, unless `TG_MODEL_STEPS` says. Each more multiplies time and memory.
const STEPS: usize = 6;

fn steps_max() -> usize {
    std::env::var("TG_MODEL_STEPS").map_or(STEPS, |steps| steps.parse().unwrap())
}

// threat: A new owner or a reorganization is not seen
#[test]
fn in_no_small_world_anything_is_served_that_is_older_than_what_was_known() {
    let warm = [Named::Agent, Named::Organization, Named::Holder, Named::Nobody].map(World::warm);
    let others = [World::new(Named::Agent), World::dropped(Named::Organization), World::above(Named::Agent)];
    for first in others.iter().chain(&warm) {
        let (worlds, broken) = search(first, None);
        assert!(broken.is_none(), "{broken:#?}");
        assert!(worlds > 5_000, "{worlds} worlds");
    }
}

// threat: A new owner or a reorganization is not seen
#[test]
fn each_rule_that_is_left_out_is_found_out() {
    for mutant in MUTANTS {
        let firsts = [World::warm(Named::Agent), World::above(Named::Agent)];
        let broken = firsts.iter().find_map(|first| search(first, Some(mutant)).1);
        assert!(broken.is_some(), "{mutant:?}");
    }
}
