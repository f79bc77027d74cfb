//! Agents whose owners are contracts (ERC-1271), where these are asked and where they are not.

use std::{sync::Barrier, time::Duration};

use alloy::primitives::{Address, B256, Bytes, U256, address};
use serde_json::{Value, json};

use crate::support::agents::{Agent, key_of};
use crate::support::client::{Answer, with};
use crate::support::harness::{Case, cases};
use crate::support::service::{SIGNED_ENDPOINTS, Service, status_of};
use crate::support::signing::{ALICE, Account, BOB, DEPLOYER};
use crate::support::time::Stopwatch;
use crate::support::{settings::Settings, stop::Stop, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    a_wallet_verifies_and_manages_keys_with_65_bytes_or_more_each_signature_once,
    a_wallet_reads_the_profile_by_a_signature_that_does_nothing_else,
    without_multicall_and_with_the_least_gas_it_is_the_same,
];

/// On a node that burns gas fast and can give an account code (EIP-7702).
pub(crate) const ON_A_REAL_NODE: &[Case<World>] = cases![
    while_wallets_burn_gas_others_are_served,
    an_account_with_code_is_heard_by_its_own_key_and_by_its_code,
];

const ACCEPTS_ALL: u8 = 0;
const BURNS_GAS: u8 = 12;
/// The last of the ways to lie of `contracts/test/Wallets.sol`; one more is an assertion that fails.
const MODES: u8 = 15;
/// Accepts too, but after nearly all the gas.
const BURNS_AND_ACCEPTS: u8 = 255;

/// The connections of a flood: more than the 32 calls that strangers have in flight.
const FLOODS: usize = 40;

/// Others are answered in so much time during a flood. A read of the chain that waits in vain is given up after 6 s.
const SERVED_WITHIN: Duration = Duration::from_secs(6);

/// The settings of a service that asks wallets.
fn asking(world: &World) -> Settings {
    world.settings().set("signature.contracts", true)
}

/// An agent of tier 4 whose owner stands at this address and has this key.
fn owned_by(world: &World, owner: Account) -> Agent {
    let agent = world.agent(4);
    world.chain().transfer(ALICE, owner, agent.id);
    world.known_agent(agent.id, owner)
}

/// An agent of tier 0 of this owner.
fn blocked(world: &World, owner: Account) -> Agent {
    let agent = world.agent(0);
    world.chain().transfer(ALICE, owner, agent.id);
    world.known_agent(agent.id, owner)
}

/// An agent of a wallet that hears the deployer's key.
fn of_a_wallet(world: &World) -> Agent {
    owned_by(world, Account { address: world.chain().deploy("KeyWallet"), key: DEPLOYER.key })
}

/// A request with so many bytes after those of the key.
fn padded(agent: &Agent, bytes: usize) -> Value {
    let draft = agent.draft();
    draft.body_with(&[&draft.signature()[..], &vec![0x5a; bytes]].concat())
}

/// A request that tells a `LyingWallet` how to behave.
fn in_mode(agent: &Agent, mode: u8) -> Value {
    agent.draft().body_with(&[[mode].as_slice(), &[0x77; 99]].concat())
}

// threat: A contract wallet lies, burns gas, or is replayed
fn a_wallet_verifies_and_manages_keys_with_65_bytes_or_more_each_signature_once(world: &World) {
    let service = Service::start(asking(world).set("keys.requests_per_hour", 1_000));
    for bytes in [0, 1, 4096 - 65] {
        let agent = of_a_wallet(world);
        for endpoint in SIGNED_ENDPOINTS {
            let body = padded(&agent, bytes);
            let answer = service.signed(endpoint, &body);
            assert_eq!(answer.status, status_of(endpoint), "{endpoint:?}: {}", answer.text());
            let details = json!({ "agentId": agent.text(), "nonce": body["nonce"] });
            for endpoint in SIGNED_ENDPOINTS {
                service.signed(endpoint, &body).is_error(400, "REPLAY_DETECTED", details.clone());
            }
        }
        let key = key_of(&service.generate(&padded(&agent, bytes)).success(201));
        let by_key = service.verify(&key).success(200);
        assert_eq!(by_key["owner"], json!(agent.owner.address.to_checksum(None)));
        let by_signature = service.verify_signature(&padded(&agent, bytes)).success(200);
        assert_eq!(with(&by_signature, "timestamp", None), with(&by_key, "timestamp", None));
    }
}

// threat: A contract wallet lies, burns gas, or is replayed
fn while_wallets_burn_gas_others_are_served(world: &World) {
    // A quarter of what they may burn: a node on a slow machine answers others in time then, whatever runs beside it.
    let service = &Service::start(asking(world).set("chain.gas_cap", 1_000_000));
    let address = world.chain().deploy("LyingWallet");
    let burning = &blocked(world, Account { address, key: BOB.key });
    let (agent, wallet) = (world.agent(4), of_a_wallet(world));
    let key = agent.generate(service);
    service.verify(&key).success(200);
    let (stop, begun) = (&Stop::default(), &Barrier::new(FLOODS + 1));
    std::thread::scope(|scope| {
        let flood = |mode: u8, status: u16| {
            let (mut connection, body) = (service.connect(), in_mode(burning, mode));
            // On a slow machine the node has no time for all of the flood.
            let mut ask = || {
                let answered = connection.post("/verify/signature", &body).unwrap().status;
                assert!([status, 503].contains(&answered), "{answered} for {status}");
            };
            ask();
            begun.wait();
            while !stop.is_set() {
                ask();
            }
        };
        for number in 0..FLOODS {
            let (mode, status) = if number % 2 == 0 { (BURNS_AND_ACCEPTS, 403) } else { (BURNS_GAS, 401) };
            scope.spawn(move || flood(mode, status));
        }
        let _stops = stop.at_end();
        begun.wait();
        let served = |answer: &dyn Fn() -> Answer| {
            let is_in_time = |_| {
                let (watch, answer) = (Stopwatch::start(), answer());
                assert!([200, 503].contains(&answer.status), "{}", answer.text());
                answer.status == 200 && watch.elapsed() < SERVED_WITHIN
            };
            // A busy machine is late now and then.
            assert!((0..5).any(is_in_time), "not within {SERVED_WITHIN:?}");
        };
        for _ in 0..5 {
            served(&|| service.verify(&key));
            served(&|| service.verify_signature(&agent.signed()));
            served(&|| service.verify_signature(&padded(&wallet, 1)));
        }
    });
}

fn a_wallet_reads_the_profile_by_a_signature_that_does_nothing_else(world: &World) {
    let (service, agent) = (Service::start(asking(world)), of_a_wallet(world));
    assert_eq!(service.get("/.well-known/tiergate").success(200)["contractSignatures"], json!(true));
    let body = agent.draft().profile_body();
    let long = json!(format!("{}5a", body["signature"].as_str().unwrap()));
    let reading = with(&body, "signature", long);
    let profile = service.post("/profile", &reading).success(200);
    assert_eq!(profile["owner"], json!(agent.owner.address.to_checksum(None)));
    service.generate(&with(&reading, "nonce", json!("1"))).error(401, "SIGNATURE_INVALID");
    service.post("/profile", &padded(&agent, 1)).error(401, "SIGNATURE_INVALID");
    world.service().post("/profile", &body).error(401, "SIGNATURE_INVALID");
    world.service().post("/profile", &reading).error(400, "VALIDATION_ERROR");
}

// threat: A contract wallet lies, burns gas, or is replayed
fn without_multicall_and_with_the_least_gas_it_is_the_same(world: &World) {
    let nowhere = address!("0x00000000000000000000000000000000DeaDBeef");
    let settings = asking(world).at("chain.multicall", nowhere).set("chain.gas_cap", 1_000_000);
    let service = Service::start(settings);
    let lying = Account { address: world.chain().deploy("LyingWallet"), key: BOB.key };
    let (agent, lying, plain) = (of_a_wallet(world), owned_by(world, lying), world.agent(4));
    let owner = lying.owner.address.to_checksum(None);
    let details = json!({ "agentId": lying.text(), "owner": owner, "recoveredSigner": null });
    for mode in 1..=MODES {
        let answer = service.verify_signature(&in_mode(&lying, mode));
        answer.is_error(401, "SIGNATURE_INVALID", details.clone());
    }
    service.verify_signature(&in_mode(&lying, ACCEPTS_ALL)).success(200);
    service.verify_signature(&padded(&plain, 1)).error(401, "SIGNATURE_INVALID");
    for bytes in [0, 4096 - 65] {
        service.verify_signature(&padded(&agent, bytes)).success(200);
    }
    service.verify_signature(&plain.signed()).success(200);
    let unminted = world.known_agent(U256::from(555_555_555_u64), ALICE);
    service.verify_signature(&padded(&unminted, 1)).error(404, "AGENT_NOT_FOUND");
}

fn an_account_with_code_is_heard_by_its_own_key_and_by_its_code(world: &World) {
    let service = Service::start(asking(world));
    // The key of an account that no other case uses.
    let carol = Account {
        address: address!("0x90F79bf6EB2c4f870365E785982E1f101E93b906"),
        key: "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    };
    let agent = owned_by(world, carol);
    let delegate = |to: Address| {
        let code = Bytes::from([&[0xef, 0x01, 0x00], &to.0[..]].concat());
        world.chain().rpc("anvil_setCode", json!([carol.address, code]));
    };
    let verify = |signer| service.verify_signature(&agent.draft().by(signer).body());
    verify(DEPLOYER).error(401, "SIGNATURE_INVALID");
    delegate(world.chain().deploy("KeyWallet"));
    for signer in [DEPLOYER, carol, DEPLOYER] {
        assert_eq!(verify(signer).success(200)["owner"], json!(carol.address.to_checksum(None)));
    }
    delegate(world.chain().deploy("LyingWallet"));
    verify(carol).success(200);
    service.verify_signature(&in_mode(&agent, BURNS_GAS)).error(401, "SIGNATURE_INVALID");
    // A precompile, whose code is empty to whoever runs it.
    delegate(Address::from_word(B256::with_last_byte(4)));
    verify(DEPLOYER).error(401, "SIGNATURE_INVALID");
    verify(carol).success(200);
}
