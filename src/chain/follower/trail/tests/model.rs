//! A simulated chain: agents whose state changes by logs, reorganizations, gaps, nodes that bear few logs at once, and
//! back ends that lag when they are asked for logs, by blocks or by time. Whatever happens, what the cache would serve after a poll that saw
//! everything is the state at the followed block.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, U256, keccak256};
use proptest::prelude::{Just, Strategy, any};
use proptest::{collection, prop_oneof, proptest};

use super::{block, node, word};
use crate::chain::cache::{Lifetimes, Plan, ProfileCache, Source, Ticket};
use crate::chain::follower::overlap::{BLOCKS_MIN, LAG_MICROS};
use crate::chain::follower::trail::{Outcome, Step, Trail};
use crate::chain::rpc::lead::{BlockMark, LogMark};
use crate::domain::agent_id::AgentId;
use crate::domain::profile::{Organization, Reputation, TrustProfile, Validation};

const AGENTS: u64 = 6;
const ORGANIZATION: u64 = 77;
const REGISTRY: Address = Address::repeat_byte(5);
const SECOND: u64 = 1_000_000;

/// What the registries hold: each agent's stake, and whether the organization is verified. The last agent is its member.
type State = ([u64; AGENTS as usize], bool);

#[derive(Debug, Clone)]
struct Block {
    mark: BlockMark,
    state: State,
    logs: Vec<LogMark>,
    mined_micros: u64,
}

/// Of which blocks a node's answer about logs knows nothing yet.
#[derive(Debug, Clone, Copy)]
enum Lag {
    /// The newest ones.
    Blocks(u64),
    /// Those that are younger.
    Micros(u64),
}

#[derive(Debug, Clone)]
enum Change {
    Stake(u64),
    Verify,
    Approve,
    Upgrade,
    Nothing,
}

#[derive(Debug, Clone)]
enum Event {
    Mine(Vec<Change>),
    /// So many blocks are replaced, by one more than so many.
    Reorganize(u64, Vec<Change>),
    /// A poll; the node bears so many blocks at once, and its logs lack the newest blocks.
    Poll {
        cap: u64,
        lag: Lag,
    },
    /// A poll that breaks off after so many answers.
    BrokenPoll(u32),
    /// A read begins, or the one under way ends.
    Begin(u64),
    End,
    /// So many blocks at once.
    Sleep(u64),
    /// So many blocks, one each 50 ms.
    Run(u64),
    /// Time without blocks.
    Wait(u64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..AGENTS).prop_map(Change::Stake),
        1 => Just(Change::Verify),
        1 => Just(Change::Approve),
        1 => Just(Change::Upgrade),
        4 => Just(Change::Nothing),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let changes = || collection::vec(change(), 0..3);
    prop_oneof![
        6 => changes().prop_map(Event::Mine),
        1 => (0..6_u64, changes()).prop_map(|(depth, changes)| Event::Reorganize(depth, changes)),
        6 => (1..40_u64, 0..BLOCKS_MIN).prop_map(|(cap, lag)| Event::Poll { cap, lag: Lag::Blocks(lag) }),
        4 => (1..40_u64).prop_map(|cap| Event::Poll { cap, lag: Lag::Blocks(0) }),
        2 => (0..4_u32).prop_map(Event::BrokenPoll),
        6 => (0..AGENTS).prop_map(Event::Begin),
        6 => any::<bool>().prop_map(|_| Event::End),
        1 => (1..60_u64).prop_map(Event::Sleep),
    ]
}

/// A quick chain, and a node that bears as much as is asked for and lags by time.
fn quick_event() -> impl Strategy<Value = Event> {
    let changes = || collection::vec(change(), 0..3);
    let poll = |lag| Event::Poll { cap: u64::MAX, lag: Lag::Micros(lag) };
    prop_oneof![
        6 => changes().prop_map(Event::Mine),
        1 => (0..6_u64, changes()).prop_map(|(depth, changes)| Event::Reorganize(depth, changes)),
        4 => (1..40_u64).prop_map(Event::Run),
        2 => (1..4 * SECOND).prop_map(Event::Wait),
        6 => (0..LAG_MICROS).prop_map(poll),
        4 => Just(poll(0)),
        6 => (0..AGENTS).prop_map(Event::Begin),
        6 => any::<bool>().prop_map(|_| Event::End),
    ]
}

struct Model {
    chain: Vec<Block>,
    forks: u64,
    trail: Trail,
    cache: ProfileCache,
    now: u64,
    /// A read under way: what it found.
    read: Option<(Ticket, Arc<TrustProfile>, Source, u64)>,
    /// Whether the last answer about logs left some out.
    has_missed: bool,
}

impl Model {
    fn new() -> Self {
        let lifetimes =
            Lifetimes { poll_interval: Duration::from_secs(1), max_staleness: Duration::from_secs(100) };
        let genesis = Block {
            mark: block(0, 0),
            state: ([1; AGENTS as usize], false),
            logs: Vec::new(),
            mined_micros: 0,
        };
        Self {
            chain: vec![genesis],
            forks: 0,
            trail: Trail::new(Some(REGISTRY)),
            cache: ProfileCache::new(lifetimes),
            now: SECOND,
            read: None,
            has_missed: false,
        }
    }

    fn head(&self) -> &Block {
        self.chain.last().unwrap()
    }

    fn mine(&mut self, changes: &[Change]) {
        let parent = self.head().clone();
        let number = parent.mark.number + 1;
        let hash = keccak256([number.to_be_bytes(), self.forks.to_be_bytes()].concat());
        let mark = BlockMark { number, hash, parent: parent.mark.hash };
        let (mut state, mut logs) = (parent.state, Vec::new());
        for change in changes {
            let (signature, topics) = match change {
                Change::Stake(agent) => {
                    state.0[*agent as usize] += 1;
                    ("Staked(uint256,address,uint256)", vec![word(*agent), B256::repeat_byte(9)])
                }
                Change::Verify => {
                    state.1 = !state.1;
                    ("OrganizationVerified(uint256,bool)", vec![word(ORGANIZATION)])
                }
                Change::Upgrade => {
                    state.0 = state.0.map(|stake| stake + 100);
                    ("Upgraded(address)", vec![B256::repeat_byte(8)])
                }
                Change::Approve => ("ApprovalForAll(address,address,bool)", vec![word(1), word(2)]),
                Change::Nothing => continue,
            };
            let topics = [vec![keccak256(signature)], topics].concat();
            let log_index = logs.len() as u64;
            let log = LogMark {
                address: REGISTRY,
                block_number: number,
                block_hash: hash,
                log_index,
                topics,
                first_word: None,
            };
            logs.push(log);
        }
        self.chain.push(Block { mark, state, logs, mined_micros: self.now });
    }

    /// One poll against the chain as it is; gives up after `answers` answers.
    fn poll(&mut self, cap: u64, lag: Lag, mut answers: u32) {
        let (asked_at, mut missed) = (self.now, false);
        let mut step = self.trail.head(self.head().mark, &node("a"), asked_at);
        loop {
            if let Step::Done(outcome) = step {
                return self.settle(outcome, asked_at);
            }
            if answers == 0 {
                return;
            }
            answers -= 1;
            step = match step {
                Step::Block(number) => {
                    let found = self.chain.get(number as usize).map(|block| block.mark);
                    self.trail.block(found)
                }
                Step::Logs { from, to } if to - from >= cap => self.trail.too_large(),
                Step::Logs { from, to } => {
                    let asked = self.chain.iter().filter(|block| (from..=to).contains(&block.mark.number));
                    let (known, lacking): (Vec<_>, Vec<_>) = asked.partition(|block| self.knows(lag, block));
                    let told: Vec<_> = known.into_iter().flat_map(|block| block.logs.clone()).collect();
                    missed |= lacking.iter().any(|block| !block.logs.is_empty());
                    self.has_missed = missed;
                    self.trail.logs(&told)
                }
                Step::LogsOfEach { .. } | Step::Done(_) => unreachable!(),
            };
        }
    }

    /// Whether a node that lags has this block's logs.
    fn knows(&self, lag: Lag, block: &Block) -> bool {
        match lag {
            Lag::Blocks(lag) => block.mark.number <= self.head().mark.number.saturating_sub(lag),
            Lag::Micros(lag) => block.mined_micros + lag <= self.now,
        }
    }

    fn settle(&mut self, outcome: Outcome, asked_at: u64) {
        match outcome {
            Outcome::Followed { head, drops } => {
                assert_eq!(head, self.head().mark, "one honest node is followed to its head");
                self.cache.advance(head, &drops, asked_at);
            }
            Outcome::Restarted { head, .. } => {
                self.has_missed = false;
                self.cache.restart(head, asked_at);
            }
            Outcome::Unread { .. } | Outcome::Behind => {}
        }
    }

    fn profile(&self, agent: u64, at: &Block) -> Arc<TrustProfile> {
        let organization =
            Organization { org_id: U256::from(ORGANIZATION), name: String::new(), verified: at.state.1 };
        Arc::new(TrustProfile {
            owner: Address::ZERO,
            stake: U256::from(at.state.0[agent as usize]),
            reputation: Reputation::default(),
            validation: Validation::default(),
            metadata_uri: String::new(),
            organizations: if agent == AGENTS - 1 { vec![organization] } else { Vec::new() },
        })
    }

    /// Begins a read as it is due. A block that is gone is read at the latest one.
    fn begin(&mut self, agent: u64) {
        let (plan, ticket) = self.cache.begin(id(agent), self.now);
        let pinned = match plan {
            Plan::Pinned(mark) => self.chain.iter().find(|block| block.mark == mark),
            Plan::Latest => None,
        };
        let from = if pinned.is_some() { Source::Followed } else { Source::Latest };
        let profile = self.profile(agent, pinned.unwrap_or_else(|| self.head()));
        self.read = Some((ticket, profile, from, self.now));
    }

    fn end(&mut self) {
        if let Some((ticket, profile, from, began)) = self.read.take() {
            self.cache.keep(&ticket, &profile, from, (began, self.now));
        }
    }

    fn take(&mut self, event: Event) {
        self.now += SECOND / 1_000;
        match event {
            Event::Mine(changes) => self.mine(&changes),
            Event::Reorganize(depth, changes) => {
                self.forks += 1;
                let kept = self.chain.len().saturating_sub(depth as usize).max(1);
                self.chain.truncate(kept);
                for _ in 0..=depth {
                    self.mine(&changes);
                }
            }
            Event::Poll { cap, lag } => {
                self.poll(cap, lag, u32::MAX);
                self.check();
            }
            Event::BrokenPoll(answers) => self.poll(u64::MAX, Lag::Blocks(0), answers),
            Event::Begin(agent) => self.begin(agent),
            Event::End => self.end(),
            Event::Sleep(blocks) => (0..blocks).for_each(|_| self.mine(&[])),
            Event::Run(blocks) => (0..blocks).for_each(|_| {
                self.now += SECOND / 20;
                self.mine(&[]);
            }),
            Event::Wait(micros) => self.now += micros,
        }
    }

    /// Right after a poll everything served is as at its head.
    fn check(&self) {
        if self.has_missed {
            return;
        }
        for agent in 0..AGENTS {
            if let Some(served) = self.cache.get(id(agent), self.now) {
                assert_eq!(served, self.profile(agent, self.head()), "agent {agent}");
            }
        }
    }
}

fn id(agent: u64) -> AgentId {
    AgentId::new(U256::from(agent))
}

proptest! {
    #[test]
    fn what_is_served_after_a_poll_is_the_state_at_its_head(events in collection::vec(event(), 1..80)) {
        let mut model = Model::new();
        for event in events {
            model.take(event);
        }
    }

    #[test]
    fn what_is_served_is_the_state_at_the_head_once_a_node_that_lagged_for_15_seconds_tells_all(
        events in collection::vec(quick_event(), 1..120),
    ) {
        let mut model = Model::new();
        for event in events {
            model.take(event);
        }
    }
}

#[test]
fn the_model_caches_and_drops() {
    let mut model = Model::new();
    model.poll(10, Lag::Blocks(0), u32::MAX);
    for _ in 0..2 {
        model.begin(3);
        model.end();
        model.now += 1;
        model.poll(10, Lag::Blocks(0), u32::MAX);
    }
    assert!(model.cache.get(id(3), model.now).is_some(), "served at the followed block");
    model.mine(&[Change::Stake(2)]);
    model.poll(10, Lag::Blocks(0), u32::MAX);
    assert!(model.cache.get(id(3), model.now).is_some());
    model.mine(&[Change::Stake(3)]);
    model.poll(10, Lag::Blocks(0), u32::MAX);
    assert!(model.cache.get(id(3), model.now).is_none());
}
