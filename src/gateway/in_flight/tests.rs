//! Places against a small model, and the queue of those that wait.

use std::sync::{Arc, mpsc};
use std::{
    collections::HashMap, future::poll_fn, iter, pin::pin, sync::atomic::Ordering::SeqCst, thread,
    time::Duration,
};

use alloy::primitives::U256;
use futures_util::FutureExt;
use futures_util::future::join_all;
use proptest::prelude::{Strategy, prop_oneof, proptest};
use tokio::runtime;
use tokio::time::{advance, pause};

use super::{AtLimit, Caller, InFlightLimits, RequestSlot, SHARE, TenantInFlight, halves};
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

fn agent(id: u64) -> Caller {
    Caller::Agent(AgentId::new(U256::from(id)))
}

fn stream(id: u64) -> Caller {
    Caller::Stream(AgentId::new(U256::from(id)))
}

fn client(last: u8) -> Caller {
    Caller::Client(ClientNet::of([192, 0, 2, last].into()))
}

/// The caller whose share a request is of.
fn owner(caller: Caller) -> Caller {
    if let Caller::Stream(agent) = caller { Caller::Agent(agent) } else { caller }
}

fn callers() -> impl Strategy<Value = Caller> {
    prop_oneof![(1..4_u64).prop_map(agent), (1..4_u64).prop_map(stream), (1..4_u8).prop_map(client)]
}

/// Enters without waiting.
fn acquire(
    in_flight: &Arc<InFlightLimits>,
    tenant: &Arc<TenantInFlight>,
    limits: &InFlight,
    caller: Caller,
) -> Result<RequestSlot, AtLimit> {
    in_flight.acquire(tenant, limits, caller).now_or_never().expect("nobody waits without a queue")
}

/// The slots that are held, by tenant and caller.
#[derive(Default)]
struct Model(HashMap<(usize, Caller), u32>);

impl Model {
    fn held(&self, which: impl Fn(usize, Caller) -> bool) -> u32 {
        self.0.iter().filter(|((tenant, caller), _)| which(*tenant, *caller)).map(|(_, held)| held).sum()
    }

    /// The law and the caps, in words of arithmetic.
    fn has_room(&self, tenant: usize, caller: Caller) -> bool {
        let is_public = |caller| matches!(caller, Caller::Client(_));
        let mine = self.held(|at, one| at == tenant && one == caller);
        let own = self.held(|at, one| at == tenant && owner(one) == owner(caller));
        let of_tenant = self.held(|at, _| at == tenant);
        let public = self.held(|at, one| at == tenant && is_public(one));
        let of_all = self.held(|_, _| true);
        let (free, cap) = match caller {
            Caller::Agent(_) => (LIMITS.all - of_tenant, LIMITS.per_agent),
            Caller::Stream(_) => (LIMITS.all - of_tenant, LIMITS.streams_per_agent),
            Caller::Client(_) => ((LIMITS.public - public).min(LIMITS.all - of_tenant), LIMITS.public),
        };
        free > 0
            && mine < cap
            && own < SHARE * free
            && of_all < PROCESS_MAX
            && of_tenant < SHARE * (PROCESS_MAX - of_all)
    }
}

proptest! {
    // threat: One client or tenant takes all places
    #[test]
    fn a_place_is_given_exactly_while_its_owner_holds_less_than_its_share_and_its_cap(
        steps in proptest::collection::vec((0..2_usize, callers(), 0..100_usize, 0..3_u8), 0..200),
    ) {
        let in_flight = Arc::new(InFlightLimits::new(PROCESS_MAX));
        let tenants: [Arc<TenantInFlight>; 2] = [Arc::default(), Arc::default()];
        let (mut model, mut held) = (Model::default(), Vec::new());
        for (tenant, caller, which, kind) in steps {
            if kind == 0 && !held.is_empty() {
                let (owner, slot): ((usize, Caller), RequestSlot) = held.swap_remove(which % held.len());
                drop(slot);
                *model.0.get_mut(&owner).unwrap() -= 1;
                continue;
            }
            let has_room = model.has_room(tenant, caller);
            let found = acquire(&in_flight, &tenants[tenant], &LIMITS, caller);
            assert_eq!(found.is_ok(), has_room, "{tenant} {caller:?} {:?} {:?}", found.err(), model.0);
            if let Ok(slot) = found {
                held.push(((tenant, caller), slot));
                *model.0.entry((tenant, caller)).or_default() += 1;
            }
        }
        drop(held);
        assert_eq!((in_flight.taken.load(SeqCst), in_flight.owners.keys()), (0, 0), "all are given back");
        assert!(tenants.iter().all(|tenant| tenant.taken.load(SeqCst) == 0));
    }
}

// threat: One client or tenant takes all places
#[test]
fn a_lone_owner_ends_at_three_quarters_and_each_limit_has_its_name() {
    let in_flight = Arc::new(InFlightLimits::new(1_000));
    let tenant = Arc::default();
    let wide = InFlight { all: 100, public: 40, per_agent: 100, ..LIMITS };
    let fill = |limits: &InFlight, caller| {
        let mut slots = Vec::new();
        loop {
            match acquire(&in_flight, &tenant, limits, caller) {
                Ok(slot) => slots.push(slot),
                Err(at_limit) => return (slots.len(), at_limit),
            }
        }
    };
    assert_eq!(fill(&wide, agent(1)), (75, AtLimit::Share));
    assert_eq!(fill(&wide, client(1)), (30, AtLimit::Share));
    assert_eq!(fill(&LIMITS, agent(1)), (5, AtLimit::Agent { max: 5 }));
    assert_eq!(fill(&LIMITS, stream(1)), (2, AtLimit::Streams { max: 2 }));
    let few = InFlight { all: 16, streams_per_agent: 16, ..wide };
    for (first, second) in [(agent(1), stream(1)), (stream(1), agent(1))] {
        let held: Vec<_> = iter::from_fn(|| acquire(&in_flight, &tenant, &few, first).ok()).collect();
        assert_eq!(held.len(), 12);
        assert_eq!(fill(&few, second), (0, AtLimit::Share), "one agent has one share");
    }
    let _strangers: Vec<_> =
        (0..40).map(|at| acquire(&in_flight, &tenant, &wide, client(at)).unwrap()).collect();
    assert_eq!(fill(&wide, client(50)), (0, AtLimit::Public));
    let _agents: Vec<_> = (0..60).map(|at| acquire(&in_flight, &tenant, &wide, agent(at)).unwrap()).collect();
    assert_eq!(fill(&wide, agent(100)), (0, AtLimit::Tenant));
    let other = Arc::default();
    let narrow = Arc::new(InFlightLimits::new(4));
    let _three = [1, 2, 3].map(|id| acquire(&narrow, &other, &LIMITS, agent(id)).unwrap());
    assert_eq!(
        acquire(&narrow, &other, &LIMITS, agent(4)).err(),
        Some(AtLimit::Process),
        "its share of the process"
    );
    let third = Arc::default();
    let _fourth = acquire(&narrow, &third, &LIMITS, agent(1)).unwrap();
    assert_eq!(acquire(&narrow, &third, &LIMITS, agent(1)).err(), Some(AtLimit::Process));
}

#[tokio::test]
async fn a_full_tenant_has_requests_wait_in_their_order_for_a_short_time_and_in_a_bounded_line() {
    pause();
    let (in_flight, tenant) = (Arc::new(InFlightLimits::new(1_000)), Arc::default());
    let limits = InFlight { all: 2, public: 1, queue_max: 2, ..LIMITS };
    let mut held = vec![
        in_flight.acquire(&tenant, &limits, agent(1)).await.unwrap(),
        in_flight.acquire(&tenant, &limits, client(1)).await.unwrap(),
    ];
    let mut first = pin!(in_flight.acquire(&tenant, &limits, agent(2)));
    let mut second = pin!(in_flight.acquire(&tenant, &limits, agent(3)));
    let mut clients = pin!(in_flight.acquire(&tenant, &limits, client(2)));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    assert!(clients.as_mut().now_or_never().is_none(), "in a queue of their own");
    let beyond = in_flight.acquire(&tenant, &limits, agent(4)).now_or_never().unwrap();
    assert_eq!(beyond.err(), Some(AtLimit::Tenant), "the queue is full");

    drop(held.remove(0));
    let newcomer = in_flight.acquire(&tenant, &limits, agent(5)).now_or_never().unwrap();
    assert_eq!(newcomer.err(), Some(AtLimit::Tenant), "nobody overtakes the queue");
    assert!(second.as_mut().now_or_never().is_none(), "nor is it overtaken inside");
    let first = first.now_or_never().unwrap().unwrap();
    assert!(clients.as_mut().now_or_never().is_none());
    drop(first);
    assert!(second.as_mut().now_or_never().is_some_and(|found| found.is_ok()));

    // The second's slot came back at once, and a client may not have it: clients are at their cap.
    assert!(clients.as_mut().now_or_never().is_none());
    advance(Duration::from_millis(499)).await;
    assert!(clients.as_mut().now_or_never().is_none());
    advance(Duration::from_millis(2)).await;
    assert_eq!(clients.now_or_never().unwrap().err(), Some(AtLimit::Public));
    drop(held);
    assert_eq!((in_flight.taken.load(SeqCst), in_flight.owners.keys()), (0, 0));
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
    let outcome = outcome.recv_timeout(Duration::from_secs(120));
    assert_ne!(outcome.as_ref().err(), Some(&mpsc::RecvTimeoutError::Timeout), "a task never yields");
    runs.join().unwrap().unwrap();
    outcome.unwrap()
}

// threat: One client or tenant takes all places
#[test]
fn strangers_at_a_full_tenant_cost_a_few_polls_and_are_refused_in_time() {
    for public in [8, 100, 6] {
        in_simulated_time(async move {
            let (in_flight, tenant) = (Arc::new(InFlightLimits::new(1_000)), Arc::default());
            let limits = InFlight { all: 8, public, queue_max: 10, ..LIMITS };
            let mut held: Vec<_> =
                (1..7).map(|last| acquire(&in_flight, &tenant, &limits, client(last)).unwrap()).collect();
            held.extend((1..3).map(|id| acquire(&in_flight, &tenant, &limits, agent(id)).unwrap()));
            let waiting = (10..15).map(|last| counted(in_flight.acquire(&tenant, &limits, client(last))));
            let at_limit = if public == 6 { AtLimit::Public } else { AtLimit::Tenant };
            for (found, polls, took) in join_all(waiting).await {
                assert_eq!((found.err(), took.as_millis()), (Some(at_limit), 500));
                // The others' end wakes the one that is next in the queue, and `join_all` polls whoever is woken.
                assert!(polls <= 8, "{polls}");
            }
        });
    }
}

#[test]
fn strangers_of_several_networks_get_places_in_turn_while_others_come_and_go() {
    in_simulated_time(async {
        let (in_flight, tenant) = (Arc::new(InFlightLimits::new(1_000)), Arc::default());
        let limits = InFlight { all: 2, public: 2, queue_max: 10, ..LIMITS };
        let without_queue = InFlight { queue_max: 0, ..limits };
        let mut held: Vec<_> =
            (1..3).map(|last| acquire(&in_flight, &tenant, &limits, client(last)).unwrap()).collect();
        let mut waiting: Vec<_> = (10..14)
            .map(|last| Box::pin(counted(in_flight.acquire(&tenant, &limits, client(last)))))
            .collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
            let newcomer = in_flight.acquire(&tenant, &without_queue, client(20)).now_or_never().unwrap();
            assert_eq!(newcomer.err(), Some(AtLimit::Public), "nobody overtakes them");
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
    let (in_flight, tenant) = (Arc::new(InFlightLimits::new(1_000)), Arc::default());
    let limits = InFlight { all: 3, queue_max: 100, ..LIMITS };
    let held: Vec<_> = (1..4).map(|id| acquire(&in_flight, &tenant, &limits, agent(id)).unwrap()).collect();
    let mut waiting: Vec<_> =
        (0..3).map(|_| Box::pin(in_flight.acquire(&tenant, &limits, agent(9)))).collect();
    assert!(waiting.iter_mut().all(|one| one.as_mut().now_or_never().is_none()));
    let fourth = in_flight.acquire(&tenant, &limits, agent(9)).now_or_never().unwrap();
    assert_eq!(fourth.err(), Some(AtLimit::Share), "a greedy owner does not fill the queue");
    assert!(in_flight.acquire(&tenant, &limits, agent(8)).now_or_never().is_none(), "and another may wait");
    waiting.clear();
    assert!(tenant.agents.is_empty());
    drop(held);
    assert!(in_flight.acquire(&tenant, &limits, agent(9)).now_or_never().is_some_and(|found| found.is_ok()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_that_race_all_pass_and_no_cap_is_ever_exceeded() {
    let (in_flight, tenant) = (Arc::new(InFlightLimits::new(8)), Arc::<TenantInFlight>::default());
    let limits =
        InFlight { all: 4, public: 2, queue_max: 1_000, queue_time: Duration::from_secs(600), ..LIMITS };
    let tasks: Vec<_> = (0..400_u16)
        .map(|at| {
            let (in_flight, tenant) = (Arc::clone(&in_flight), Arc::clone(&tenant));
            tokio::spawn(async move {
                let caller =
                    if at % 2 == 0 { agent(at.into()) } else { client(u8::try_from(at / 2).unwrap()) };
                let slot = in_flight.acquire(&tenant, &limits, caller).await;
                let (all, public) = halves(tenant.taken.load(SeqCst));
                assert!(all <= 4 && public <= 2);
                tokio::task::yield_now().await;
                slot.map(drop)
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!((in_flight.taken.load(SeqCst), tenant.taken(), in_flight.owners.keys()), (0, 0, 0));
}

#[test]
fn as_many_may_ask_as_there_are_places_and_one_network_ends_at_three_quarters() {
    let in_flight = Arc::new(InFlightLimits::new(16));
    let net = |last| ClientNet::of([192, 0, 2, last].into());
    let verifying: Vec<_> = (0..20).map_while(|_| in_flight.begin_verification(net(1)).ok()).collect();
    assert_eq!(verifying.len(), 12);
    let others: Vec<_> = (2..20).map_while(|last| in_flight.begin_verification(net(last)).ok()).collect();
    assert_eq!(others.len(), 4);
    assert_eq!(in_flight.begin_verification(net(30)).err(), Some(AtLimit::Process));
    let tenant = Arc::default();
    assert!(acquire(&in_flight, &tenant, &LIMITS, agent(1)).is_ok(), "slots are apart");
    drop((verifying, others));
    assert_eq!((in_flight.verifying.load(SeqCst), in_flight.owners.keys()), (0, 0));
}
