//! The scripts' window in every state that it can reach with limits up to 3, wherever the clock is stepped: each answer,
//! each list and each expiry is compared with the model of `domain::window`, whose promises are explored there.
//!
//! A width is three ticks of 20 s. Each state is laid out in Redis anew for every way to leave it. States that differ by
//! whole widths are one, so that there are finitely many.

use std::{collections::BTreeSet, path::Path};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value, pipe};

use crate::domain::{Quota, Verdict, window::tests::model::Model};
use crate::ports::{KeySeen, Scope};
use crate::store::contract::{agent, digest};
use crate::store::redis::answers::{key_seen, read};
use crate::store::redis::tests::server::{RedisServer, say};
use crate::store::{redis::names::Name, redis::tests::START_SECS};

const TICK: u64 = 20_000_000;
const WIDTH: u64 = 3 * TICK;

/// How many ticks the clock moves between two requests: to the edges of a window, and beyond a width in both directions.
const MOVES: [i64; 10] = [-7, -4, -3, -1, 0, 1, 2, 3, 4, 7];

/// The time of all states, to the width.
const BASE: u64 = (START_SECS * 1_000_000).next_multiple_of(WIDTH);

/// How many ways to leave a state are tried in one round trip.
const AT_ONCE: usize = 500;

/// A window between two requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    now: u64,
    model: Model,
    /// When Redis forgets it, by the clock.
    expires: u64,
}

/// One way to leave a state.
#[derive(Debug)]
struct Leave {
    state: State,
    limit: u32,
    /// The key is the agent's current one.
    is_current: bool,
}

impl State {
    /// After the clock has moved. What Redis forgets by then must not matter.
    fn moved(&self, ticks: i64) -> Self {
        let now = self.now.saturating_add_signed(ticks * i64::try_from(TICK).unwrap());
        if self.expires > now {
            return Self { now, ..self.clone() };
        }
        assert!(self.model.is_idle(WIDTH, now), "forgotten while it matters: {self:?}");
        Self { now, model: Model::default(), expires: 0 }
    }

    /// The same state in the one width.
    fn at_base(&self) -> Self {
        let now = BASE + self.now % WIDTH;
        let expires = if self.expires == 0 { 0 } else { self.expires + now - self.now };
        Self { now, model: self.model.shifted(self.now, now), expires }
    }

    fn leaves(&self) -> Vec<Leave> {
        let states = MOVES.iter().map(|ticks| self.moved(*ticks));
        let asks = states.flat_map(|state| {
            let ask = move |limit, is_current| Leave { state: state.clone(), limit, is_current };
            [ask(1, true), ask(2, true), ask(3, true), ask(3, false)]
        });
        asks.collect()
    }
}

/// The hashes of the scripts under test, whose clock is their last argument.
struct Hashes {
    admit: String,
    left: String,
}

impl Hashes {
    async fn load(connection: &mut MultiplexedConnection) -> Self {
        let [admit, left] = ["admit_by_key.lua", "left.lua"].map(code);
        let mut load = async |code: String| {
            let hash = say(connection, &["SCRIPT", "LOAD", &code]).await.unwrap();
            read(&hash).unwrap()
        };
        Self { admit: load(admit).await, left: load(left).await }
    }
}

/// A script with what stands before it. Files are read when the test runs, so that a changed script is tried at once.
fn code(script: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/redis/scripts");
    let parts = ["answers.lua", "clock_simulated.lua", "window.lua", "keys.lua", script];
    parts.map(|name| std::fs::read_to_string(folder.join(name)).unwrap()).concat()
}

/// The window of the agent with this number, and the full one of another tenant.
fn windows(number: usize) -> [String; 2] {
    let agent = agent(u64::try_from(number).unwrap());
    let acme = Scope::Tenant("acme".into());
    [&acme, &Scope::Api].map(|scope| Name::Window(agent, scope).to_string())
}

/// Lays the state out, asks, and looks at what is there afterwards: as many commands as [`judge`] takes answers of.
fn lay_out(pipe: &mut Pipeline, place: usize, leave: &Leave, hashes: &Hashes) {
    let [own, other] = windows(place);
    let Leave { state, limit, is_current } = leave;
    if !state.model.accepted.is_empty() {
        pipe.rpush(&own, &state.model.accepted).ignore();
        pipe.cmd("PEXPIRE").arg(&own).arg((state.expires - state.now) / 1_000).ignore();
    }
    pipe.rpush(&other, &[state.now; 3]).ignore();
    let look = pipe.cmd("EVALSHA").arg(&hashes.left).arg(2).arg(&own).arg(Name::Record(agent(0)));
    look.arg(*limit).arg(WIDTH).arg(state.now);
    let shown = digest(u64::from(!is_current)).to_bytes();
    let admit = pipe.cmd("EVALSHA").arg(&hashes.admit).arg(2).arg(Name::Record(agent(0))).arg(&own);
    admit.arg(shown.as_slice()).arg(*limit).arg(WIDTH).arg(state.now);
    pipe.cmd("LRANGE").arg(&own).arg(0).arg(-1);
    pipe.cmd("PTTL").arg(&own);
    pipe.cmd("LRANGE").arg(&other).arg(0).arg(-1);
}

fn times(value: &Value) -> Vec<u64> {
    let texts = read::<Vec<Vec<u8>>>(value).unwrap().into_iter();
    texts.map(|text| String::from_utf8(text).unwrap().parse().unwrap()).collect()
}

/// An answer to the microsecond.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Admitted { remaining: u32 },
    Limited { retry_after_micros: u64 },
    KeyRevoked,
}

impl Answer {
    fn read(value: &Value) -> Self {
        let numbers: Vec<u64> = read(value).unwrap();
        match numbers[..] {
            [0, remaining] => Self::Admitted { remaining: remaining.try_into().unwrap() },
            [1, retry_after_micros] => Self::Limited { retry_after_micros },
            [2] => Self::KeyRevoked,
            _ => panic!("{value:?}"),
        }
    }
}

/// Compares with the model, and says which state comes next.
fn judge(leave: &Leave, answers: &[Value]) -> (State, Answer) {
    let Leave { state, limit, is_current } = leave;
    let [left, admitted, own, millis, other] = answers else { panic!("{answers:?}") };
    let quota = Quota { limit: *limit, window_micros: WIDTH };
    let (model, verdict) = state.model.step(quota, state.now);
    let (expected, expected_left) = match verdict {
        Verdict::Admitted { remaining } => (Answer::Admitted { remaining }, remaining + 1),
        Verdict::Limited { retry_after_micros } => (Answer::Limited { retry_after_micros }, 0),
    };
    assert_eq!(key_seen(left).unwrap(), KeySeen { has_key: true, left: expected_left }, "{leave:?}");
    let (model, expected) =
        if *is_current { (model, expected) } else { (state.model.clone(), Answer::KeyRevoked) };
    assert_eq!(Answer::read(admitted), expected, "{leave:?}");
    assert_eq!(times(own), model.accepted, "{leave:?}");
    assert_eq!(times(other), [state.now; 3], "another tenant's window: {leave:?}");

    let next = State { now: state.now, model, expires: expiry(state.now, millis) };
    if next.model == state.model {
        assert_eq!(next.expires, state.expires, "a refusal changed the expiry: {leave:?}");
    } else {
        let newest = *next.model.accepted.last().unwrap();
        let due = newest + WIDTH..=newest + 2 * WIDTH;
        assert!(due.contains(&next.expires), "expires {} after {leave:?}", next.expires);
    }
    (next, expected)
}

/// The time when Redis forgets a window, to the tick, by its own clock, which goes on. 0: the window is not there.
fn expiry(now: u64, millis: &Value) -> u64 {
    if *millis == Value::Int(-2) {
        return 0;
    }
    let millis = read::<u64>(millis).expect("it expires");
    now + (millis * 1_000 + TICK / 2) / TICK * TICK
}

/// Leaves states in Redis, which is emptied before.
async fn leave_at_once(
    connection: &mut MultiplexedConnection,
    hashes: &Hashes,
    leaves: &[Leave],
) -> Vec<(State, Answer)> {
    let mut pipe = pipe();
    pipe.cmd("FLUSHALL").ignore();
    pipe.set(Name::Record(agent(0)).to_string(), digest(0).to_bytes().as_slice()).ignore();
    for (place, leave) in leaves.iter().enumerate() {
        lay_out(&mut pipe, place, leave, hashes);
    }
    let answers: Vec<Value> = pipe.query_async(connection).await.unwrap();
    leaves.iter().zip(answers.chunks(5)).map(|(leave, answers)| judge(leave, answers)).collect()
}

#[tokio::test]
async fn the_script_does_what_the_model_does_in_every_state_and_wherever_the_clock_is_stepped() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let mut connection = server.connected().await;
    let hashes = Hashes::load(&mut connection).await;
    let mut waiting: Vec<State> =
        (0..3).map(|tick| State { now: BASE + tick * TICK, model: Model::default(), expires: 0 }).collect();
    let mut seen: BTreeSet<State> = waiting.iter().cloned().collect();
    let (mut admitted, mut limited, mut revoked) = (0, 0, 0);
    while !waiting.is_empty() {
        let leaves: Vec<Leave> = waiting.iter().flat_map(State::leaves).collect();
        let mut left = Vec::new();
        for batch in leaves.chunks(AT_ONCE) {
            left.extend(leave_at_once(&mut connection, &hashes, batch).await);
        }
        waiting.clear();
        for (next, answer) in left {
            match answer {
                Answer::Admitted { .. } => admitted += 1,
                Answer::Limited { .. } => limited += 1,
                // The clock alone has moved: two such moves in a row would have no end.
                _ => {
                    revoked += 1;
                    continue;
                }
            }
            let next = next.at_base();
            if seen.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    let states = seen.len();
    assert!(states > 200 && admitted > 1_000 && limited > 1_000 && revoked > 1_000, "{states} states");
    println!("{states} states, {admitted} admitted, {limited} limited, {revoked} revoked");
}

/// Windows with many entries, some of them old, under limits that were lowered or raised, also after a long step back.
#[tokio::test]
async fn any_number_of_old_entries_is_dropped_at_once_whatever_the_limit_was() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let mut connection = server.connected().await;
    let hashes = Hashes::load(&mut connection).await;
    let sizes = [(0, 5), (1, 4), (3, 1), (4, 0), (5, 9), (12, 3), (700, 1_300), (2_699, 1), (5_000, 0)];
    let mut leaves = Vec::new();
    for (old, live) in sizes {
        let accepted: Vec<u64> = (BASE + 1 - old..=BASE + live).collect();
        for now in [BASE + WIDTH, BASE - 2 * WIDTH] {
            let state = State { now, model: Model { accepted: accepted.clone() }, expires: BASE + 2 * WIDTH };
            let leave = |limit| Leave { state: state.clone(), limit, is_current: true };
            leaves.extend([1, 2, 9, 2_700, 10_000].map(leave));
        }
    }
    for leave in leaves {
        leave_at_once(&mut connection, &hashes, &[leave]).await;
    }
}
