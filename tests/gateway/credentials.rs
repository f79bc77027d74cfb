//! Credentials that entry points of one kind alone know: those of other services, and those of contracts. `entry_points` has all others.

use alloy::primitives::hex;
use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::credentials::{signed, signed_with};
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::signing::{ALICE, Account, BOB, DEPLOYER};
use crate::support::{client::Answer, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    a_foreign_token_goes_through_untouched,
    a_contract_wallets_signature_passes_once_where_wallets_are_asked_and_nowhere_else,
];

fn ask(stage: &Stage, request: &Request) -> Answer {
    stage.site().gateway.ask(request)
}

/// Values that do not begin as our keys do.
const FOREIGN: &[(&str, &str)] = &[
    ("Authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),
    ("Authorization", "Bearer sk-abc"),
    ("Authorization", "Basic c3ZjX2xpdmVfdjFfOng="),
    ("Authorization", "Digest username=\"x\""),
    ("Authorization", "Bearer"),
    ("Authorization", "Bearer SVC_LIVE_V1_abc"),
    ("X-API-Key", "another"),
    ("X-API-Key", ""),
    ("Authorization", ""),
];

fn a_foreign_token_goes_through_untouched(stage: &Stage) {
    let (_, key) = stage.agent(4);
    for (name, value) in FOREIGN {
        let path = public_path();
        assert_eq!(ask(stage, &Request::get(ACME, &path).with(name, value)).status, 200);
        assert_eq!(stage.site().upstream.only(&path).all(name), [*value]);
    }
    // A foreign token beside our key in the other header is the upstream's business.
    let path = agents_path();
    let request = Request::get(ACME, &path).with("Authorization", "Bearer sk-abc").key(&key);
    assert_eq!(ask(stage, &request).status, 200);
    let seen = stage.site().upstream.only(&path);
    assert_eq!(seen.all("authorization"), ["Bearer sk-abc"]);
    assert_eq!(seen.all("x-api-key"), [""; 0]);
}

// threat: A contract wallet lies, burns gas, or is replayed
fn a_contract_wallets_signature_passes_once_where_wallets_are_asked_and_nowhere_else(stage: &Stage) {
    let (world, asking) = (stage.world(), Site::of(stage).set("signature.contracts", true).start());
    let wallet = Account { address: world.chain().deploy("KeyWallet"), key: DEPLOYER.key };
    let id = world.agent(3).id;
    world.chain().transfer(ALICE, wallet, id);
    let agent = world.known_agent(id, wallet);
    for padding in [0, 1, 4096 - 65] {
        let (path, draft) = (agents_path(), agent.draft());
        let signature = [&draft.signature()[..], &vec![0x5a; padding]].concat();
        let headers = signed_with(&draft, &hex::encode_prefixed(&signature));
        let request = Request::get(ACME, &path).with_all(&headers);
        let refused = ask(stage, &request);
        if padding == 0 {
            refused.error(401, "SIGNATURE_INVALID");
        } else {
            assert_eq!(refused.error(400, "VALIDATION_ERROR")["field"], json!("signature"));
        }
        assert_eq!(asking.gateway.ask(&request).status, 200, "{padding}");
        asking.gateway.ask(&request).error(400, "REPLAY_DETECTED");
        let seen = asking.upstream.only(&path);
        assert_eq!(seen.all("x-agent-owner"), [wallet.address.to_checksum(None)]);
        assert_eq!(seen.all("x-agent-signature"), [""; 0]);
    }
    let stranger = signed(&agent.draft().by(BOB));
    let answer = asking.gateway.ask(&Request::get(ACME, &agents_path()).with_all(&stranger));
    answer.error(401, "SIGNATURE_INVALID");
}
