//! Fills an embedded store with agents that have keys, for measuring: `fill FOLDER AGENTS [CHAIN_ID [SIGNER]]`, for the
//! chain 8004 and the first contract of an account that development nodes unlock, with keys that the account SIGNER asked
//! for. The key of agent 26 is `svc_live_v1_` and 26 in 64 hexadecimal digits, `…01a`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use alloy::primitives::{Address, U256, address};
use sha2::{Digest, Sha256};
use tiergate::domain::{AgentId, Binding, KeyDigest, KeyTerms, Nonce, NonceClaim, UnixSeconds, WebOrigin};
use tiergate::os::Os;
use tiergate::ports::{Clock, KeyChange, KeyChanged, NewKey, Store};
use tiergate::store::{EmbeddedStore, embedded::Options};
use tokio::task::JoinSet;

/// How many keys are under way at once, so that they share commits.
const UNDER_WAY: u64 = 2_000;

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(folder), Some(Ok(agents)), Ok(chain_id), Ok(signer)) = (
        args.next(),
        args.next().map(|count| count.parse::<u64>()),
        args.next().as_deref().unwrap_or("8004").parse::<u64>(),
        args.next().map_or(Ok(Address::ZERO), |signer| signer.parse::<Address>()),
    ) else {
        eprintln!("usage: fill FOLDER AGENTS [CHAIN_ID [SIGNER]]");
        return ExitCode::FAILURE;
    };
    let os = Os::new();
    let identity = address!("0x5FbDB2315678afecb367f032d93F642f64180aa3");
    let options = Options {
        path: PathBuf::from(folder),
        binding: Binding::new(chain_id, identity, false),
        nonce_retention_secs: 86_400,
        // A new store takes no signature for so long and a second.
        max_ahead_secs: 0,
    };
    let store = match EmbeddedStore::open(options, Arc::new(os)) {
        Ok(store) => Arc::new(store),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut issued = 0;
    for first in (1..=agents).step_by(UNDER_WAY as usize) {
        let mut batch = JoinSet::new();
        for agent in first..=agents.min(first + UNDER_WAY - 1) {
            let store = Arc::clone(&store);
            batch.spawn(async move { issue(&*store, agent, signer, os.unix_seconds()).await });
        }
        issued += batch.join_all().await.into_iter().filter(|done| *done).count();
    }
    println!("{issued} agents have keys");
    ExitCode::SUCCESS
}

async fn issue(store: &dyn Store, agent: u64, signer: Address, now_secs: u64) -> bool {
    // A script that asks with the keys can write them: the agent's number in as many digits as a key has.
    let digest = KeyDigest::from_bytes(Sha256::digest(format!("svc_live_v1_{agent:064x}")).into());
    let origin = WebOrigin::parse(&format!("https://agent-{agent}.example/hook")).ok();
    let change =
        KeyChange::Issue(NewKey { digest, origin, signer, terms: KeyTerms::default(), per_agent_max: 1 });
    let signed_at = UnixSeconds(now_secs + 1);
    let claim = NonceClaim { nonce: Nonce::new(U256::from(agent)), signed_at };
    let agent = AgentId::new(U256::from(agent));
    store.change_key(agent, claim, change).await.is_ok_and(|(changed, _)| changed == KeyChanged::Done)
}
