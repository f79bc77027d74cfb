//! Places against a small model, and the line of those that wait.

use std::sync::{Arc, mpsc};
use std::{
    collections::HashMap, future::poll_fn, pin::pin, sync::atomic::Ordering::SeqCst, thread, time::Duration,
};

use alloy::primitives::U256;
use futures_util::FutureExt;
use futures_util::future::join_all;
use proptest::prelude::{Strategy, prop_oneof, proptest};
use tokio::runtime;
use tokio::time::{advance, pause};

use super::{Full, Guest, Place, Room, SHARE, TenantRoom, halves};
use crate::domain::{AgentId, ClientNet, InFlight};
use crate::serve::Timer;

const LIMITS: InFlight = InFlight {
    all: 12,
    public: 6,
    per_agent: 5,
    streams_per_agent: 2,
    queue_max: 0,
    queue_time: Duration::from_millis(500),
};

const PROCESS_MAX: u32 = 16;

fn agent(id: u64) -> Guest {
    Guest::Agent(AgentId::new(U256::from(id)))
}

fn stream(id: u64) -> Guest {
    Guest::Stream(AgentId::new(U256::from(id)))
}

fn stranger(last: u8) -> Guest {
    Guest::Stranger(ClientNet::of([192, 0, 2, last].into()))
}

fn guests() -> impl Strategy<Value = Guest> {
    prop_oneof![(1..4_u64).prop_map(agent), (1..4_u64).prop_map(stream), (1..4_u8).prop_map(stranger)]
}

/// Enters without waiting.
fn enter(room: &Arc<Room>, tenant: &Arc<TenantRoom>, limits: &InFlight, guest: Guest) -> Result<Place, Full> {
    room.enter(tenant, limits, guest).now_or_never().expect("nobody waits without a line")
}

/// The places that are held, by tenant and guest.
#[derive(Default)]
struct Model(HashMap<(usize, Guest), u32>);

impl Model {
    fn held(&self, which: impl Fn(usize, Guest) -> bool) -> u32 {
        self.0.iter().filter(|((tenant, guest), _)| which(*tenant, *guest)).map(|(_, held)| held).sum()
    }

    /// The law and the caps, in words of arithmetic.
    fn has_room(&self, tenant: usize, guest: Guest) -> bool {
        let is_public = |guest| matches!(guest, Guest::Stranger(_));
        let mine = self.held(|at, one| at == tenant && one == guest);
        let of_tenant = self.held(|at, _| at == tenant);
        let public = self.held(|at, one| at == tenant && is_public(one));
        let of_all = self.held(|_, _| true);
        let (free, cap) = match guest {
            Guest::Agent(_) => (LIMITS.all - of_tenant, LIMITS.per_agent),
            Guest::Stream(_) => (LIMITS.all - of_tenant, LIMITS.streams_per_agent),
            Guest::Stranger(_) => ((LIMITS.public - public).min(LIMITS.all - of_tenant), LIMITS.public),
        };
        free > 0
            && mine < cap
            && mine < SHARE * free
            && of_all < PROCESS_MAX
            && of_tenant < SHARE * (PROCESS_MAX - of_all)
    }
}

proptest! {
    // threat: One client or tenant takes all places
    #[test]
    fn a_place_is_given_exactly_while_its_owner_holds_less_than_its_share_and_its_cap(
        steps in proptest::collection::vec((0..2_usize, guests(), 0..100_usize, 0..3_u8), 0..200),
    ) {
        let room = Arc::new(Room::new(PROCESS_MAX));
        let tenants: [Arc<TenantRoom>; 2] = [Arc::default(), Arc::default()];
        let (mut model, mut held) = (Model::default(), Vec::new());
        for (tenant, guest, which, kind) in steps {
            if kind == 0 && !held.is_empty() {
                let (owner, place): ((usize, Guest), Place) = held.swap_remove(which % held.len());
                drop(place);
                *model.0.get_mut(&owner).unwrap() -= 1;
                continue;
            }
            let has_room = model.has_room(tenant, guest);
            let found = enter(&room, &tenants[tenant], &LIMITS, guest);
            assert_eq!(found.is_ok(), has_room, "{tenant} {guest:?} {:?} {:?}", found.err(), model.0);
            if let Ok(place) = found {
                held.push(((tenant, guest), place));
                *model.0.entry((tenant, guest)).or_default() += 1;
            }
        }
        drop(held);
        assert_eq!((room.taken.load(SeqCst), room.owners.keys()), (0, 0), "all are given back");
        assert!(tenants.iter().all(|tenant| tenant.taken.load(SeqCst) == 0));
    }
}

// threat: One client or tenant takes all places
#[test]
fn a_lone_owner_ends_at_three_quarters_and_each_limit_has_its_name() {
    let room = Arc::new(Room::new(1_000));
    let tenant = Arc::default();
    let wide = InFlight { all: 100, public: 40, per_agent: 100, ..LIMITS };
    let fill = |limits: &InFlight, guest| {
        let mut places = Vec::new();
        loop {
            match enter(&room, &tenant, limits, guest) {
                Ok(place) => places.push(place),
                Err(full) => return (places.len(), full),
            }
        }
    };
    assert_eq!(fill(&wide, agent(1)), (75, Full::Share));
    assert_eq!(fill(&wide, stranger(1)), (30, Full::Share));
    assert_eq!(fill(&LIMITS, agent(1)), (5, Full::Agent { max: 5 }));
    assert_eq!(fill(&LIMITS, stream(1)), (2, Full::Streams { max: 2 }));
    let _strangers: Vec<_> = (0..40).map(|at| enter(&room, &tenant, &wide, stranger(at)).unwrap()).collect();
    assert_eq!(fill(&wide, stranger(50)), (0, Full::Public));
    let _agents: Vec<_> = (0..60).map(|at| enter(&room, &tenant, &wide, agent(at)).unwrap()).collect();
    assert_eq!(fill(&wide, agent(100)), (0, Full::Tenant));
    let other = Arc::default();
    let narrow = Arc::new(Room::new(4));
    let _three = [1, 2, 3].map(|id| enter(&narrow, &other, &LIMITS, agent(id)).unwrap());
    assert_eq!(
        enter(&narrow, &other, &LIMITS, agent(4)).err(),
        Some(Full::Process),
        "its share of the process"
    );
    let third = Arc::default();
    let _fourth = enter(&narrow, &third, &LIMITS, agent(1)).unwrap();
    assert_eq!(enter(&narrow, &third, &LIMITS, agent(1)).err(), Some(Full::Process));
}

#[tokio::test]
async fn a_full_tenant_has_requests_wait_in_their_order_for_a_short_time_and_in_a_bounded_line() {
    pause();
    let (room, tenant) = (Arc::new(Room::new(1_000)), Arc::default());
    let limits = InFlight { all: 2, public: 1, queue_max: 2, ..LIMITS };
    let mut held = vec![
        room.enter(&tenant, &limits, agent(1)).await.unwrap(),
        room.enter(&tenant, &limits, stranger(1)).await.unwrap(),
    ];
    let mut first = pin!(room.enter(&tenant, &limits, agent(2)));
    let mut second = pin!(room.enter(&tenant, &limits, agent(3)));
    let mut strangers = pin!(room.enter(&tenant, &limits, stranger(2)));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    assert!(strangers.as_mut().now_or_never().is_none(), "in a line of their own");
    let beyond = room.enter(&tenant, &limits, agent(4)).now_or_never().unwrap();
    assert_eq!(beyond.err(), Some(Full::Tenant), "the line is full");

    drop(held.remove(0));
    let newcomer = room.enter(&tenant, &limits, agent(5)).now_or_never().unwrap();
    assert_eq!(newcomer.err(), Some(Full::Tenant), "nobody overtakes the line");
    assert!(second.as_mut().now_or_never().is_none(), "nor is it overtaken inside");
    let first = first.now_or_never().unwrap().unwrap();
    assert!(strangers.as_mut().now_or_never().is_none());
    drop(first);
    assert!(second.as_mut().now_or_never().is_some_and(|found| found.is_ok()));

    // The second's place came back at once, and a stranger may not have it: strangers are at their cap.
    assert!(strangers.as_mut().now_or_never().is_none());
    advance(Duration::from_millis(499)).await;
    assert!(strangers.as_mut().now_or_never().is_none());
    advance(Duration::from_millis(2)).await;
    assert_eq!(strangers.now_or_never().unwrap().err(), Some(Full::Public));
    drop(held);
    assert_eq!((room.taken.load(SeqCst), room.owners.keys()), (0, 0));
}

/// The outcome of a request, how often it was polled, and how long it took.
async fn counted<T>(request: impl Future<Output = T>) -> (T, u32, Duration) {
    let (mut request, mut polls, begun) = (pin!(request), 0, Timer::now());
    let outcome = poll_fn(|context| {
        polls += 1;
        request.as_mut().poll(context)
    });
    let outcome = outcome.await;
    (outcome, polls, begun.elapsed())
}

/// Runs in simulated time on a thread of its own: a task that never yields fails the test.
fn in_simulated_time<T: Send + 'static>(case: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, outcome) = mpsc::channel();
    let runs = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        sender.send(runtime.unwrap().block_on(case))
    });
    let outcome = outcome.recv_timeout(Duration::from_secs(30));
    assert_ne!(outcome.as_ref().err(), Some(&mpsc::RecvTimeoutError::Timeout), "a task never yields");
    runs.join().unwrap().unwrap();
    outcome.unwrap()
}

// threat: One client or tenant takes all places
#[test]
fn strangers_at_a_full_tenant_cost_a_few_polls_and_are_refused_in_time() {
    for public in [8, 100, 6] {
        in_simulated_time(async move {
            let (room, tenant) = (Arc::new(Room::new(1_000)), Arc::default());
            let limits = InFlight { all: 8, public, queue_max: 10, ..LIMITS };
            let mut held: Vec<_> =
                (1..7).map(|last| enter(&room, &tenant, &limits, stranger(last)).unwrap()).collect();
            held.extend((1..3).map(|id| enter(&room, &tenant, &limits, agent(id)).unwrap()));
            let waiting = (10..15).map(|last| counted(room.enter(&tenant, &limits, stranger(last))));
            let full = if public == 6 { Full::Public } else { Full::Tenant };
            for (found, polls, took) in join_all(waiting).await {
                assert_eq!((found.err(), took.as_millis()), (Some(full), 500));
                // The others' end wakes the one that is next in the line, and `join_all` polls whoever is woken.
                assert!(polls <= 8, "{polls}");
            }
        });
    }
}

#[test]
fn strangers_of_several_networks_get_places_in_turn_while_others_come_and_go() {
    in_simulated_time(async {
        let (room, tenant) = (Arc::new(Room::new(1_000)), Arc::default());
        let limits = InFlight { all: 2, public: 2, queue_max: 10, ..LIMITS };
        let without_line = InFlight { queue_max: 0, ..limits };
        let mut held: Vec<_> =
            (1..3).map(|last| enter(&room, &tenant, &limits, stranger(last)).unwrap()).collect();
        let mut waiting: Vec<_> =
            (10..14).map(|last| Box::pin(counted(room.enter(&tenant, &limits, stranger(last))))).collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
            let newcomer = room.enter(&tenant, &without_line, stranger(20)).now_or_never().unwrap();
            assert_eq!(newcomer.err(), Some(Full::Public), "nobody overtakes them");
        }
        while !waiting.is_empty() {
            drop(held.remove(0));
            for later in waiting.iter_mut().skip(1) {
                assert!(later.as_mut().now_or_never().is_none(), "not its turn");
            }
            let (found, polls, _) = waiting.remove(0).now_or_never().unwrap();
            held.push(found.unwrap());
            assert!(polls <= 5, "{polls}");
        }
    });
}

// threat: One client or tenant takes all places
#[tokio::test]
async fn requests_that_wait_count_as_their_owners_and_those_that_leave_are_forgotten() {
    let (room, tenant) = (Arc::new(Room::new(1_000)), Arc::default());
    let limits = InFlight { all: 3, queue_max: 100, ..LIMITS };
    let held: Vec<_> = (1..4).map(|id| enter(&room, &tenant, &limits, agent(id)).unwrap()).collect();
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(room.enter(&tenant, &limits, agent(9)))).collect();
    assert!(waiting.iter_mut().all(|one| one.as_mut().now_or_never().is_none()));
    let fourth = room.enter(&tenant, &limits, agent(9)).now_or_never().unwrap();
    assert_eq!(fourth.err(), Some(Full::Share), "a greedy owner does not fill the line");
    assert!(room.enter(&tenant, &limits, agent(8)).now_or_never().is_none(), "and another may wait");
    waiting.clear();
    assert!(tenant.agents.is_empty());
    drop(held);
    assert!(room.enter(&tenant, &limits, agent(9)).now_or_never().is_some_and(|found| found.is_ok()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_race_all_pass_and_no_cap_is_ever_exceeded() {
    let (room, tenant) = (Arc::new(Room::new(8)), Arc::<TenantRoom>::default());
    let limits =
        InFlight { all: 4, public: 2, queue_max: 1_000, queue_time: Duration::from_secs(10), ..LIMITS };
    let tasks: Vec<_> = (0..400_u16)
        .map(|at| {
            let (room, tenant) = (Arc::clone(&room), Arc::clone(&tenant));
            tokio::spawn(async move {
                let guest =
                    if at % 2 == 0 { agent(at.into()) } else { stranger(u8::try_from(at / 2).unwrap()) };
                let place = room.enter(&tenant, &limits, guest).await;
                let (all, public) = halves(tenant.taken.load(SeqCst));
                assert!(all <= 4 && public <= 2);
                tokio::task::yield_now().await;
                place.map(drop)
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!((room.taken.load(SeqCst), tenant.taken(), room.owners.keys()), (0, 0, 0));
}

#[test]
fn as_many_may_ask_as_there_are_places_and_one_network_ends_at_three_quarters() {
    let room = Arc::new(Room::new(16));
    let net = |last| ClientNet::of([192, 0, 2, last].into());
    let asking: Vec<_> = (0..20).map_while(|_| room.ask(net(1)).ok()).collect();
    assert_eq!(asking.len(), 12);
    let others: Vec<_> = (2..20).map_while(|last| room.ask(net(last)).ok()).collect();
    assert_eq!(others.len(), 4);
    assert_eq!(room.ask(net(30)).err(), Some(Full::Process));
    let tenant = Arc::default();
    assert!(enter(&room, &tenant, &LIMITS, agent(1)).is_ok(), "places are apart");
    drop((asking, others));
    assert_eq!((room.asking.load(SeqCst), room.owners.keys()), (0, 0));
}
