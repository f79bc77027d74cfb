//! Nodes that have got less far than others, or no further: what they say is not taken for the latest state.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::chain::fault::ReadError;
use crate::chain::fixture::{
    ALL, Bench, CHAIN_ID, OWNER, PATIENT, Reply, TestNode, bench, bench_judging, cause, hex, not_minted,
};
use crate::chain::rpc::lead::BlockId;
use crate::chain::rpc::{At, Deadline, Lane, Terms};
use crate::chain::snapshot::read_owner;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;

/// When the clock of these tests begins.
const BEGINNING: u64 = 1_700_000_000;

/// What a node has.
#[derive(Clone, Copy)]
struct State {
    head: u64,
    /// When its latest block was made.
    made_at: u64,
    owner: Option<Address>,
    is_dead: bool,
    /// It answers contract calls, and refuses to say where it is.
    is_secretive: bool,
}

/// A node that gets on when it is told to.
struct Sluggard {
    node: TestNode,
    state: Arc<Mutex<State>>,
}

impl Sluggard {
    async fn at(head: u64, owner: Option<Address>) -> Self {
        let state = Arc::new(Mutex::new(State {
            head,
            made_at: BEGINNING,
            owner,
            is_dead: false,
            is_secretive: false,
        }));
        let shared = Arc::clone(&state);
        let node = TestNode::start(move |request| answer(*shared.lock(), request)).await;
        Self { node, state }
    }

    fn gets_on(&self, head: u64, owner: Option<Address>) {
        let mut state = self.state.lock();
        (state.head, state.owner) = (head, owner);
    }

    fn dies(&self) {
        self.state.lock().is_dead = true;
    }

    fn reads(&self) -> usize {
        self.node.calls("eth_call")
    }
}

fn answer(state: State, request: &Value) -> Reply {
    if state.is_dead {
        return Reply::CloseMidway;
    }
    let number = json!(format!("{:#x}", state.head));
    match request["method"].as_str() {
        Some("eth_chainId") => Reply::Result(json!(format!("{CHAIN_ID:#x}"))),
        Some("eth_blockNumber") => Reply::Result(number),
        Some("eth_getBlockByNumber") if state.is_secretive => {
            Reply::Error(-32_601, "the method does not exist".to_owned(), None)
        }
        Some("eth_getBlockByNumber") => {
            let (hash, timestamp) = (B256::repeat_byte(1), format!("{:#x}", state.made_at));
            let block = json!({"number": number, "hash": hash, "parentHash": hash, "timestamp": timestamp});
            Reply::Result(block)
        }
        _ => state.owner.map_or_else(
            || Reply::Error(3, "execution reverted".to_owned(), Some(hex(not_minted()))),
            |owner| Reply::Result(hex(owner.into_word())),
        ),
    }
}

async fn owner(bench: &Bench) -> Result<Option<Address>, ChainFault> {
    let deadline = Deadline::after(bench.clock.monotonic_micros(), Duration::from_secs(6));
    let terms = Terms { at: At::Latest, lane: Lane::Known, deadline };
    bench.pool.call(&terms, Some(ALL.identity), &Bytes::new(), read_owner).await
}

async fn look_after_secs(bench: &Bench, secs: u64) {
    bench.clock.advance_secs(secs);
    bench.pool.tick().await;
}

/// Two nodes, the first of them leading, with its head followed.
async fn pair(first: &Sluggard, second: &Sluggard) -> Bench {
    let bench = bench(&[first.node.url(), second.node.url()], ALL, PATIENT);
    bench.pool.tick().await;
    let lead = bench.pool.lead().await.unwrap();
    assert_eq!(*lead.name(), *first.node.url());
    let head = lead.block(BlockId::Latest).await.unwrap().unwrap();
    bench.pool.followed(head.number);
    bench
}

#[tokio::test]
async fn a_node_that_stands_still_alone_is_a_fault_until_it_goes_on() {
    let node = Sluggard::at(100, Some(OWNER)).await;
    let bench = bench_judging(&[node.node.url()], ALL, PATIENT, Some(Duration::from_secs(600)));
    assert_eq!(owner(&bench).await.unwrap(), Some(OWNER));
    look_after_secs(&bench, 600).await;
    assert_eq!(owner(&bench).await.unwrap(), Some(OWNER), "chains may pause for so long");
    let lead = bench.pool.lead().await.unwrap();
    bench.clock.advance_secs(1);
    let fault = lead.block(BlockId::Latest).await.unwrap_err();
    assert_eq!(
        cause(&fault),
        &ReadError::OldHead { head: 100, age_secs: 601 },
        "whoever looks first finds it"
    );
    assert!(bench.pool.lead().await.is_err(), "nobody is followed");
    let fault = owner(&bench).await.unwrap_err();
    assert_eq!(cause(&fault), &ReadError::OldHead { head: 100, age_secs: 601 });
    let shown = format!("tiergate_follower_block_timestamp_seconds {BEGINNING}");
    assert!(bench.metrics.render().unwrap().contains(&shown));
    look_after_secs(&bench, 6).await;
    assert!(owner(&bench).await.is_err());
    node.state.lock().made_at = BEGINNING + 610;
    look_after_secs(&bench, 6).await;
    assert_eq!(owner(&bench).await.unwrap(), Some(OWNER));
}

#[tokio::test]
async fn a_node_that_stands_still_beside_one_that_goes_on_is_left_within_two_looks() {
    let (still, going) = (Sluggard::at(100, None).await, Sluggard::at(100, None).await);
    let bench = pair(&still, &going).await;
    going.gets_on(101, Some(OWNER));
    look_after_secs(&bench, 5).await;
    assert_eq!(owner(&bench).await.unwrap(), Some(OWNER), "who has the block is asked first");
    look_after_secs(&bench, 5).await;
    let fit = |node: &Sluggard| format!("tiergate_rpc_node_fit{{endpoint=\"{}\"}} 1", node.node.url());
    let shown = bench.metrics.render().unwrap();
    assert!(!shown.contains(&fit(&still)) && shown.contains(&fit(&going)));
    assert_eq!(*bench.pool.lead().await.unwrap().name(), *going.node.url(), "who goes on is followed");
}

#[tokio::test]
async fn an_agent_that_the_last_node_lacks_is_a_fault_and_not_unminted() {
    let (first, second) = (Sluggard::at(105, Some(OWNER)).await, Sluggard::at(100, None).await);
    let bench = pair(&first, &second).await;
    assert_eq!(owner(&bench).await.unwrap(), Some(OWNER));
    assert_eq!((first.reads(), second.reads()), (1, 0));
    first.dies();
    let fault = owner(&bench).await.unwrap_err();
    assert_eq!((cause(&fault).kind(), &*fault.endpoint), ("behind", &*second.node.url()));
    second.gets_on(105, Some(OWNER));
    bench.clock.advance_secs(1);
    assert_eq!(owner(&bench).await.unwrap(), Some(OWNER));
    second.gets_on(106, None);
    assert_eq!(owner(&bench).await.unwrap(), None, "it has all that was seen, so its no counts");
}

#[tokio::test]
async fn what_a_node_does_not_say_of_its_head_does_not_make_it_one_that_has_it() {
    let (first, second) = (Sluggard::at(105, Some(OWNER)).await, Sluggard::at(100, None).await);
    let bench = pair(&first, &second).await;
    bench.clock.advance_secs(1);
    second.state.lock().is_secretive = true;
    first.dies();
    assert_eq!(cause(&owner(&bench).await.unwrap_err()).kind(), "behind");
}

#[tokio::test]
async fn a_node_that_has_got_on_since_it_was_looked_at_is_believed() {
    let (first, second) = (Sluggard::at(105, Some(OWNER)).await, Sluggard::at(100, None).await);
    let bench = pair(&first, &second).await;
    bench.clock.advance_secs(1);
    second.gets_on(105, None);
    first.dies();
    assert_eq!(owner(&bench).await.unwrap(), None, "asked once more, it is as far");
}

#[tokio::test]
async fn a_healthy_lead_costs_a_read_one_call() {
    let (first, second) = (Sluggard::at(105, Some(OWNER)).await, Sluggard::at(100, None).await);
    let bench = pair(&first, &second).await;
    let heads = || [&first, &second].map(|node| node.node.calls("eth_getBlockByNumber"));
    let before = heads();
    for _ in 0..10 {
        bench.clock.advance_secs(1);
        assert_eq!(owner(&bench).await.unwrap(), Some(OWNER));
    }
    assert_eq!((first.reads(), second.reads(), heads()), (10, 0, before));
}
