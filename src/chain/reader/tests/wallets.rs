//! Owners that are contracts: what they are asked, what counts as consent, and what they can't do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{sync::Arc, time::Duration};

use alloy::primitives::{Address, B256};
use alloy::sol_types::SolCall;
use serde_json::{Value, json};

use crate::chain::fixture::{
    ALL, Bench, HEAD, OWNER, PATIENT, Reply, TestNode, agent, bench, bench_judging, kind_of,
};
use crate::chain::tests::results::{created, created_at, dated, hex, returned, reverted};
use crate::chain::{dated::Result3, fault::ReadError, registries::calls::ownerOfCall};
use crate::ports::{Asked, AskedHolders, Asker, Chain, ChainFault};

const DIGEST: B256 = B256::repeat_byte(0xd1);

/// The answer of an owner to these bytes.
async fn ask(bench: &Bench, id: u64, signature: &[u8]) -> Result<Option<AskedHolders>, ChainFault> {
    bench.reader.ask_holders(agent(id), DIGEST, signature).await
}

/// An owner that was asked, of an agent without a wallet.
fn owner_alone(address: Address, has_code: bool, accepts: bool) -> Option<AskedHolders> {
    Some(AskedHolders { owner: Asked { address, has_code, accepts }, wallet: None })
}

/// The one word of consent.
fn consent() -> Vec<u8> {
    [&[0x16, 0x26, 0xba, 0x7e][..], &[0; 28]].concat()
}

/// The results of the creation for an owner with this answer.
fn answered(result: Result3) -> [Result3; 2] {
    [returned(ownerOfCall::abi_encode_returns(&OWNER)), result]
}

// threat: A contract wallet lies, burns gas, or is replayed
#[tokio::test]
async fn only_the_very_word_of_the_standard_is_consent() {
    let with = |index: usize| {
        let mut word = consent();
        word[index] ^= 1;
        word
    };
    let mut refusals: Vec<_> = (0..32).map(|index| returned(with(index))).collect();
    refusals.extend([31, 4, 0].map(|length| returned(consent()[..length].to_vec())));
    refusals.extend([reverted(consent()), reverted(Vec::new()), returned([consent(), vec![0; 32]].concat())]);
    for (result, accepts) in
        refusals.into_iter().map(|result| (result, false)).chain([(returned(consent()), true)])
    {
        let (shown, has_code) = (format!("{result:?}"), !result.returnData.is_empty());
        let answer = hex(created(HEAD, &answered(result)));
        let node = TestNode::answering(move |_| Reply::Result(answer.clone())).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        let asked = ask(&bench, 1, &[7; 65]).await.unwrap();
        assert_eq!(asked, owner_alone(OWNER, has_code, accepts), "{shown}");
    }
}

#[tokio::test]
async fn an_answer_of_another_chain_or_of_an_older_block_is_asked_again_and_one_that_is_short_is_a_fault() {
    let count = Arc::new(AtomicU64::new(0));
    let good = |number| Reply::Result(hex(created(number, &answered(returned(consent())))));
    let node = TestNode::answering(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 | 3 => good(HEAD),
        1 => good(HEAD - 1),
        2 => Reply::Result(hex(created_at((5, HEAD + 1, 1_700_000_000), &answered(returned(consent()))))),
        4 => Reply::Result(hex(created(HEAD, &answered(returned(consent()))[..1]))),
        _ => good(HEAD - 1),
    })
    .await;
    let bench = bench_judging(&[node.url()], Duration::from_secs(600));
    for calls in [1, 4] {
        assert!(ask(&bench, 1, &[7; 65]).await.unwrap().unwrap().owner.accepts);
        assert_eq!(node.calls("eth_call"), calls);
    }
    assert_eq!(kind_of(&ask(&bench, 1, &[7; 65]).await.unwrap_err().cause), "unintelligible");
    let behind = ReadError::Behind { number: HEAD - 1, newest: HEAD };
    assert_eq!(*ask(&bench, 1, &[7; 65]).await.unwrap_err().cause, *behind.to_string());
}

#[tokio::test]
async fn errors_of_a_node_are_faults_and_no_refusal_by_the_owner() {
    let revert = Reply::Error(3, "execution reverted".to_owned(), Some(json!("0x")));
    let gas = Reply::Error(-32_000, "out of gas".to_owned(), None);
    for reply in [revert, gas, Reply::Result(json!("0x")), Reply::Result(Value::Null), Reply::CloseMidway] {
        let shown = format!("{reply:?}");
        let node = TestNode::answering(move |_| reply.clone()).await;
        let bench = bench(&[node.url()], ALL, PATIENT);
        assert!(ask(&bench, 1, &[7; 65]).await.is_err(), "{shown}");
    }
}

/// A node that runs no creation, and answers for it like this. The owner has this code and answers calls like this.
async fn without_creations(none: Reply, code: &'static str, answer: Reply) -> TestNode {
    let owner = returned(ownerOfCall::abi_encode_returns(&OWNER));
    let multicall = hex(dated(HEAD, &[owner]));
    let block = json!({ "number": format!("{HEAD:#x}"), "hash": DIGEST, "parentHash": DIGEST, "timestamp": "0x6553f100" });
    TestNode::answering(move |request| {
        let call = &request["params"][0];
        match (request["method"].as_str().unwrap(), call["to"].as_str()) {
            ("eth_getCode", _) => Reply::Result(json!(code)),
            ("eth_getBlockByNumber", _) => Reply::Result(block.clone()),
            (_, None) => none.clone(),
            (_, Some(to)) if to == format!("{OWNER:#x}") => {
                assert_eq!((&request["params"][1], &call["gas"]), (&json!("0x3e8"), &json!("0x200b20")));
                answer.clone()
            }
            (_, Some(_)) => Reply::Result(multicall.clone()),
        }
    })
    .await
}

// threat: Strangers' requests make the only node unhealthy
#[tokio::test]
async fn nodes_that_run_no_creation_are_asked_by_calls_with_to_and_count_as_healthy() {
    let zksync = Reply::Error(3, "toAddressIsNull".to_owned(), None);
    let revert = Reply::Error(3, "execution reverted".to_owned(), Some(json!("0x")));
    let gas = Reply::Error(-32_000, "out of gas".to_owned(), None);
    let more = [consent(), vec![0; 32]].concat();
    let word = |data: Vec<u8>| Reply::Result(hex(data));
    let missing = Reply::Error(-32_602, "missing to".to_owned(), None);
    for none in [Reply::Result(json!("0x")), zksync, revert.clone(), missing] {
        for (code, answer, expected) in [
            ("0x", word(Vec::new()), Some((false, false))),
            ("0x", word(consent()), Some((false, false))),
            ("0x60", word(consent()), Some((true, true))),
            ("0x60", word(more.clone()), Some((true, true))),
            ("0x60", word(vec![0; 32]), Some((true, false))),
            ("0x60", word(consent()[..31].to_vec()), Some((true, false))),
            ("0x60", revert.clone(), Some((true, false))),
            ("0x60", gas.clone(), Some((true, false))),
            ("0x60", Reply::Error(-32_603, "EVM error OutOfGas".to_owned(), None), Some((true, false))),
            ("0x60", Reply::Result(Value::Null), None),
        ] {
            let node = without_creations(none.clone(), code, answer.clone()).await;
            let bench = bench(&[node.url()], ALL, PATIENT);
            for _ in 0..3 {
                let asked = ask(&bench, 1, &[7; 65]).await;
                let holders = expected.map(|(has_code, accepts)| owner_alone(OWNER, has_code, accepts));
                assert_eq!(asked.ok(), holders, "{none:?} {code} {answer:?}");
            }
            let seen = bench.reader.inspect_holders(agent(1), Asker::Stranger).await.unwrap();
            assert_eq!(seen, owner_alone(OWNER, code != "0x", false), "nobody is asked");
            assert!(bench.reader.holders(agent(1), Asker::Vouched).await.is_ok());
            let healthy = bench.metrics.rpc_node_healthy.with_label_values(&[&node.url()]).get();
            assert_eq!(healthy, 1, "{none:?} {code} {answer:?}");
        }
    }
}

/// Another one than those of nodes that run no creation: a node that has refused one for what is in it.
#[tokio::test]
async fn an_error_of_a_node_that_runs_creations_is_a_fault_and_leads_to_no_further_reads() {
    let node = TestNode::answering(|request| {
        let call = &request["params"][0];
        assert!(call["to"].is_null(), "{request}");
        let is_trial = call["data"].as_str().unwrap().len() < 8_000;
        let trial = Reply::Result(hex(dated(HEAD, &[])));
        if is_trial { trial } else { Reply::Error(-32_000, "out of gas".to_owned(), None) }
    })
    .await;
    let bench = bench(&[node.url()], ALL, PATIENT);
    assert_eq!(kind_of(&ask(&bench, 1, &[7; 4_096]).await.unwrap_err().cause), "node_error");
}

#[tokio::test]
async fn holders_are_asked_at_the_block_that_named_them_alone() {
    let node = without_creations(Reply::Result(json!("0x")), "0x60", Reply::Result(hex(consent()))).await;
    let another =
        json!({ "number": "0x3e8", "hash": DIGEST, "parentHash": DIGEST, "timestamp": "0x6553f101" });
    for other in [Value::Null, another] {
        let wrong = TestNode::answering(move |request| match request["method"].as_str().unwrap() {
            "eth_getBlockByNumber" => Reply::Result(other.clone()),
            "eth_getCode" => Reply::Result(json!("0x60")),
            _ if request["params"][0]["to"].is_null() => Reply::Result(json!("0x")),
            _ => Reply::Result(hex(dated(HEAD, &[returned(ownerOfCall::abi_encode_returns(&OWNER))]))),
        })
        .await;
        let alone = bench(&[wrong.url()], ALL, PATIENT);
        let other = ReadError::OtherBlock(HEAD).to_string();
        assert_eq!(*ask(&alone, 1, &[7; 65]).await.unwrap_err().cause, *other);
        let both = bench(&[wrong.url(), node.url()], ALL, PATIENT);
        assert_eq!(ask(&both, 1, &[7; 65]).await.unwrap(), owner_alone(OWNER, true, true));
    }
}

#[cfg(feature = "dev-chain")]
mod on_the_development_chain {
    use alloy::primitives::{Address, B256, U256};
    use alloy::signers::SignerSync;
    use alloy::signers::local::PrivateKeySigner;

    use futures_util::future::join_all;

    use super::{DIGEST, ask, owner_alone};
    use crate::chain::fixture::{Bench, PATIENT, agent, bench_with};
    use crate::chain::tests::development::DevScene;
    use crate::dev::{accounts::SAMPLE_ACCOUNTS, fixture::create};
    use crate::ports::{Asker, Chain};

    fn signature(account: usize, digest: &B256) -> [u8; 65] {
        let signer: PrivateKeySigner = SAMPLE_ACCOUNTS[account].key.parse().unwrap();
        signer.sign_hash_sync(digest).unwrap().as_bytes()
    }

    fn bench_of(scene: &DevScene) -> Bench {
        bench_with(&[scene.node.url()], (scene.registries, scene.multicall), PATIENT)
    }

    // threat: A contract wallet lies, burns gas, or is replayed
    #[tokio::test]
    async fn a_wallet_is_asked_in_one_call_and_accepts_what_its_key_signed() {
        let scene = DevScene::new().await;
        let (bench, wallet) = (bench_of(&scene), create(&scene.chain, "KeyWallet"));
        scene.transfer(1, wallet);
        let own = signature(0, &DIGEST);
        for (signature, accepts) in [
            (own.to_vec(), true),
            ([&own[..], &[0]].concat(), true),
            ([&own[..], &[0; 4031]].concat(), true),
            (signature(1, &DIGEST).to_vec(), false),
            (signature(0, &B256::repeat_byte(0xd2)).to_vec(), false),
            (own[..64].to_vec(), false),
        ] {
            let asked = ask(&bench, 1, &signature).await.unwrap();
            assert_eq!(asked, owner_alone(wallet, true, accepts), "{} bytes", signature.len());
        }
        assert_eq!((scene.node.calls("eth_call"), scene.node.all_calls()), (6, 6));
    }

    #[tokio::test]
    async fn whoever_has_no_code_is_not_asked() {
        let scene = DevScene::new().await;
        let bench = bench_of(&scene);
        let bench = &bench;
        let asked = |id| async move { ask(bench, id, &signature(0, &DIGEST)).await.unwrap() };
        let account = SAMPLE_ACCOUNTS[2].address;
        assert_eq!(asked(2).await, owner_alone(account, false, false));
        assert_eq!(asked(99).await, None, "not minted");
        for (id, precompile) in [(1, 1), (2, 4), (3, 9)] {
            let address = Address::from_word(B256::from(U256::from(precompile)));
            scene.transfer(id, address);
            assert_eq!(asked(id).await, owner_alone(address, false, false), "precompile {precompile}");
        }
    }

    #[tokio::test]
    async fn holders_are_inspected_without_being_asked_in_calls_that_askers_share() {
        let scene = DevScene::new().await;
        let (bench, address) = (bench_of(&scene), create(&scene.chain, "LyingWallet"));
        scene.transfer(1, address);
        let coded = owner_alone(address, true, false);
        // It would accept this.
        assert_eq!(bench.reader.ask_holders(agent(1), B256::ZERO, &[0; 65]).await.unwrap(), coded);
        let account = owner_alone(SAMPLE_ACCOUNTS[2].address, false, false);
        for (id, expected) in [(1, coded), (2, account), (99, None)] {
            for asker in [Asker::Vouched, Asker::Stranger] {
                let before = scene.node.all_calls();
                let reads = (0..100).map(|_| bench.reader.inspect_holders(agent(id), asker));
                for read in join_all(reads).await {
                    assert_eq!(read.unwrap(), expected, "{id}");
                }
                assert!(scene.node.all_calls() - before <= 2, "{id}");
            }
        }
    }

    // threat: A contract wallet lies, burns gas, or is replayed
    #[tokio::test]
    async fn a_wallet_that_lies_burns_gas_or_reverts_is_no_fault_and_does_not_consent() {
        let scene = DevScene::new().await;
        let (bench, address) = (bench_of(&scene), create(&scene.chain, "LyingWallet"));
        scene.transfer(1, address);
        for mode in 0..=15 {
            let asked = ask(&bench, 1, &[mode; 65]).await.unwrap();
            assert_eq!(asked, owner_alone(address, true, mode == 0), "mode {mode}");
        }
        assert_eq!(scene.node.all_calls(), 16, "each in one call");
        let answer = scene.node.bytes_sent() / 16;
        assert!(answer < 4_000, "however much a wallet returns: {answer} bytes");
    }
}
