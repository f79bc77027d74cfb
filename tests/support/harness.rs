//! Runs cases: each in every world of its topic, on a thread of its own, within one time limit.
//!
//! A case is named after the world, the topic and the guarantee. Cases share what a world holds and bring agents of their
//! own. A case whose world lacks a server is ignored, or fails where servers are required.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::{fs::OpenOptions, io::Write, process::ExitCode, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::support::limit::{Failure, run_limited};
use crate::support::process::{TICKS, ticks};
use crate::support::world::{CHAINS, Kind};
use crate::support::{skip::are_servers_required, time::Stopwatch};

/// Cases mostly wait for other processes.
const CASES_AT_ONCE: usize = 8;

/// A case that is not done then has hung.
const CASE_WITHIN: Duration = Duration::from_secs(900);

/// A file to which each case adds what it took: hundredths of seconds of processors and of the clock, and its name.
const COSTS_VARIABLE: &str = "TG_COSTS";

/// One guarantee, to be shown in a world.
pub(crate) struct Case<W> {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&W),
}

/// The cases of a module. A function that is not listed is dead code, and the compiler says so.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$($crate::support::harness::Case { name: stringify!($name), run: $name }),*]
    };
}

pub(crate) use cases;

/// Cases of one subject, and the worlds that they run in.
pub(crate) type Topic<W> = (&'static str, &'static [Kind], &'static [Case<W>]);

/// Runs the cases that the command line asks for, and ends the process. `together` run side by side, in their order: slow
/// ones come first. `alone` run after them, one at a time, and so do those `before_release`, which `make test-all` includes. What is
/// about the chain runs over a real node where there is one, and over the development chain too before a release, or by name.
pub(crate) fn run<W: Send + Sync + 'static>(
    world: fn(Kind) -> W,
    together: &[Topic<W>],
    alone: &[Topic<W>],
    before_release: &[Topic<W>],
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CASES_AT_ONCE);
    let worlds = Kind::ALL.map(|kind| Ground { kind, world: Arc::new(world(kind)), missing: kind.missing() });
    if !arguments.list {
        say_what_is_missing(&worlds);
    }
    let is_whole = arguments.include_ignored || arguments.ignored || arguments.filter.is_some();
    let has_a_node = worlds.iter().any(|ground| ground.kind == Kind::Anvil && ground.missing.is_none());
    let spares = move |kind, kinds: &[Kind]| !is_whole && has_a_node && kind == Kind::Dev && kinds == CHAINS;
    let parts = [(together, false, false), (alone, true, false), (before_release, true, true)];
    let trials = parts.into_iter().flat_map(|(topics, is_alone, is_late)| {
        let worlds = &worlds;
        topics.iter().flat_map(move |(topic, kinds, cases)| {
            cases.iter().flat_map(move |case| {
                let is_here = move |kind| kinds.contains(&kind) && !spares(kind, kinds);
                let grounds = worlds.iter().filter(move |ground| is_here(ground.kind));
                let trials = grounds.map(move |ground| trial(ground, topic, case, is_alone));
                trials.map(move |trial| if is_late { trial.with_ignored_flag(true) } else { trial })
            })
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if HUNG.load(Ordering::SeqCst) {
        // A hung case still holds its world. The servers end with the process.
        conclusion.exit();
    }
    // Servers end and folders go before the process does.
    drop(worlds);
    conclusion.exit_code()
}

/// A world that cases share, and why its server is not there.
struct Ground<W> {
    kind: Kind,
    world: Arc<W>,
    missing: Option<String>,
}

/// Set when a case has hung.
static HUNG: AtomicBool = AtomicBool::new(false);

/// Taken for reading by cases that run side by side, for writing by those that run alone.
static TURN: RwLock<()> = RwLock::new(());

fn trial<W: Send + Sync + 'static>(ground: &Ground<W>, topic: &str, case: &Case<W>, is_alone: bool) -> Trial {
    let name = format!("{}::{topic}::{}", ground.kind.name(), case.name);
    if let Some(why) = ground.missing.clone() {
        return Trial::test(name, move || Err(Failed::from(why))).with_ignored_flag(!are_servers_required());
    }
    let (world, run, thread_name) = (Arc::clone(&ground.world), case.run, name.clone());
    Trial::test(name, move || {
        if is_alone {
            let _turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
            verdict(thread_name, move || run(&world))
        } else {
            let _turn = TURN.read().unwrap_or_else(PoisonError::into_inner);
            verdict(thread_name, move || run(&world))
        }
    })
}

/// Runs a case within its time limit, and notes what it took.
fn verdict(name: String, case: impl FnOnce() + Send + 'static) -> Result<(), Failed> {
    let noted = name.clone();
    let case = move || {
        let watch = Stopwatch::start();
        case();
        note(&noted, watch.elapsed());
    };
    run_limited(CASE_WITHIN, name, case).map_err(|failure| match failure {
        Failure::Panicked(message) => message.into(),
        Failure::Hung => {
            HUNG.store(true, Ordering::SeqCst);
            format!("not done within {CASE_WITHIN:?}").into()
        }
    })
}

/// Adds to the list of `scripts/time-limit` how long a case took, and how much of the processors' time: that of its thread and of
/// the processes that ended on it. What a world holds is nobody's.
fn note(name: &str, elapsed: Duration) {
    let Some(list) = std::env::var_os(COSTS_VARIABLE) else { return };
    let centiseconds = TICKS.get() + ticks("/proc/thread-self/stat", 2);
    let line = format!("{} {} {name}\n", centiseconds, elapsed.as_millis() / 10);
    let file = OpenOptions::new().append(true).open(list);
    file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
}

#[expect(clippy::print_stderr, reason = "lines that say why some of the cases do not run")]
fn say_what_is_missing<W>(worlds: &[Ground<W>]) {
    for why in worlds.iter().filter_map(|ground| ground.missing.as_deref()) {
        eprintln!("{why}");
    }
}
