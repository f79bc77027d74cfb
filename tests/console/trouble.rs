//! Refusals of wallets and of the service, in words that say what to do.

use serde_json::json;

use super::stage::{Stage, wallet};
use crate::support::chain::Identity;
use crate::support::signing::{ALICE, BOB};
use alloy::primitives::U256;

// threat: An owner signs unawares, or revokes by a slip
#[test]
fn a_refusal_a_wrong_account_and_a_transfer_are_told_and_what_to_do() {
    let Some(mut stage) = Stage::with_wallet(wallet(&[BOB])) else { return };
    stage.open("1");
    stage.connect();
    stage.browser.command("wallet", json!({ "refuses": true }));
    stage.ask("#generate");
    stage.is_refused("You refused in the wallet. No request was sent.");
    stage.browser.command("wallet", json!({ "refuses": false }));
    let (alice, bob) = (ALICE.address, BOB.address);
    stage.is_refused(&format!(
        "The connected account {bob} is not the owner of agent 1. Choose the account {alice} in your wallet"
    ));
    stage.cancel();
    stage.text("owner-note", "The connected account is not the owner of agent 1.");

    // The account changes in the wallet, which still signs with the one of before.
    stage.browser.command("wallet", json!({ "hangs": true }));
    stage.ask("#generate");
    stage.text("sign-facts", &format!("Account{bob}: not the owner, who is {alice}"));
    stage.browser.until("!document.getElementById('sign-wallet').disabled");
    stage.browser.click("#sign-wallet");
    stage.text("sign-wait", "Waiting for Test Wallet.");
    let mut released = wallet(&[ALICE]);
    stage.browser.command("wallet", released.clone());
    stage.text("sign-wait", &format!("The wallet's account is {alice} now."));
    stage.text("sign-facts", &format!("Account{alice}Application"));
    released["hangs"] = json!(false);
    stage.browser.command("wallet", released);
    stage.text("sign-problem", &format!("The connected account {bob} is not the owner of agent 1."));
    stage.cancel();
    stage.shows("owner-note", false);
    stage.browser.write("#endpoint", "app.example");
    stage.ask("#generate");
    stage.is_refused("The URL of your application must be a whole one");
    stage.cancel();
    stage.browser.write("#endpoint", "https://app.example");
    stage.ask("#generate");
    stage.text("sign-facts", "Applicationhttps://app.example");
    stage.sign();
    stage.key();
    stage.browser.click("#stored");
    stage.browser.write("#endpoint", "");

    // The agent is sold.
    let call = Identity::transferFromCall { from: alice, to: bob, id: U256::ONE };
    stage.transact(ALICE, stage.registry(), &call);
    stage.ask("#rotate");
    stage.is_refused(&format!("Agent 1 was transferred while this page was open. It belongs to {bob} now"));
    stage.cancel();
    stage.text("owner-note", &bob.to_string());
    stage.browser.command("wallet", wallet(&[BOB, ALICE]));
    stage.shows("owner-note", false);
    stage.ask("#rotate");
    stage.text("sign-facts", "Applicationnone declared");
    stage.sign();
    stage.key();

    // The wallet takes its accounts back.
    stage.browser.command("wallet", wallet(&[]));
    stage.shows("wallet-locked", true);
    stage.ask("#revoke");
    stage.shows("sign-wallet", false);
    stage.cancel();
    stage.has_kept_to_itself();
}

#[test]
fn limits_a_key_made_elsewhere_a_wrong_clock_and_an_unknown_agent_are_told_and_what_to_do() {
    let Some(mut stage) = Stage::with_wallet(wallet(&[BOB])) else { return };
    stage.open("999");
    stage.connect();
    stage.ask("#generate");
    stage.is_refused("There is no agent 999. Check the number.");
    stage.cancel();
    stage.browser.write("#agent", "two");
    stage.browser.click("#find button");
    stage.text("agent-problem", "digits only");
    assert_eq!(stage.browser.until("document.getElementById('agent').getAttribute('aria-invalid')"), "true");
    stage.open("2");
    stage.connect();

    // Another page of the owner makes a key.
    stage.call("POST", "/keys/generate", Some(&stage.draft(2, BOB).body())).success(201);
    stage.ask("#generate");
    stage.is_refused("Agent 2 has a key already.");
    stage.cancel();
    stage.shows("rotate", true);

    // The request grows too old in the dialog and is made anew, with the wrong time.
    stage.ask("#rotate");
    let nonce = "document.getElementById('typed').textContent";
    let before = stage.browser.until(nonce);
    // Of the facts only the time changes: screen readers keep their place.
    stage.browser.until("(window.fact = document.querySelector('#sign-facts dd'))");
    stage.pass(65);
    stage.text("sign-facts", ", 3 min");
    stage.browser.until("window.fact.isConnected");
    stage.pass(236);
    stage.text("sign-wait", "The request was too old and was made anew.");
    assert_ne!(stage.browser.until(nonce), before);
    stage.is_refused("The clock of this computer is 5 min");
    stage.text("sign-problem", "ahead");
    // The next request has the service's time.
    stage.sign();
    stage.key();
    stage.browser.click("#stored");

    // The rest of the ten an hour.
    while stage.call("POST", "/keys/rotate", Some(&stage.draft(2, BOB).body())).status == 200 {}
    stage.ask("#rotate");
    stage.is_refused("Too many requests: the limit of 10 is reached.");
    let told = "/You can go on in 5\\d min/.test(document.getElementById('sign-limit').textContent)";
    stage.browser.until(told);
    stage.browser.until("document.getElementById('sign-wallet').disabled");
    // Reading has a limit of its own.
    stage.cancel();
    stage.ask("#read");
    stage.sign();
    stage.shows("profile", true);
    stage.ask("#rotate");
    stage.browser.until(told);
    stage.pass(3_600);
    stage.browser.until("document.getElementById('sign-limit').textContent === ''");
    stage.browser.until("!document.getElementById('sign-wallet').disabled");
    stage.has_kept_to_itself();
}

#[test]
fn failures_of_the_service_are_told_and_what_to_do() {
    let Some(mut stage) = Stage::with_wallet(wallet(&[BOB])) else { return };
    stage.open("2");
    stage.connect();
    stage.ask("#generate");
    let error = |error_type: &str| json!({ "error": "for people", "errorType": error_type, "timestamp": 1 });
    let failures = [
        (json!({ "status": 503, "body": error("RPC_ERROR") }), "can't read the chain at the moment"),
        (
            json!({ "status": 500, "body": error("INTERNAL_ERROR") }),
            "The service failed. The key may have been made all the same",
        ),
        (
            json!({ "status": 502, "body": "Bad Gateway" }),
            "Something in front of the service answered (status 502). The key may have been made all the same",
        ),
        (json!({ "status": 418, "body": error("NEVER_HEARD_OF") }), "The service refused: for people"),
        (json!(null), "The key may have been made all the same"),
    ];
    for (answer, words) in failures {
        stage.browser.command("answers", json!({ "/keys/generate": answer }));
        stage.is_refused(words);
    }
    let busy = json!({ "status": 503, "headers": { "Retry-After": "40" }, "body": error("OVERLOADED") });
    stage.browser.command("answers", json!({ "/keys/generate": busy }));
    stage.is_refused("The service is busy, and changed nothing.");
    stage.text("sign-limit", "You can go on in ");
    stage.pass(40);
    stage.text("sign-wait", "You can sign now.");
    stage.browser.command("answers", json!({}));
    stage.sign();
    stage.key();
    stage.browser.click("#stored");

    stage.ask("#revoke");
    for answer in [json!(null), json!({ "status": 502, "body": "Bad Gateway" })] {
        stage.browser.command("answers", json!({ "/keys": answer }));
        stage.is_refused("The key may have been revoked all the same.");
    }
}

// threat: An owner signs unawares, or revokes by a slip
#[test]
fn a_wallet_on_another_chain_is_given_this_one_and_may_sign_anyway() {
    let mut away = wallet(&[BOB]);
    away["chain"] = json!("0x1");
    away["knows"] = json!(["0x1"]);
    let Some(mut stage) = Stage::with_wallet(away) else { return };
    stage.open("2");
    stage.connect();
    stage.text("wallet-chain", "1");
    stage.ask("#generate");
    stage.text("sign-chain-words", "Your wallet is on chain 1, this signature is for chain 8004.");
    stage.text("sign-switch", "Switch to Tiergate development chain");
    stage.browser.until("!document.getElementById('sign-switch').disabled");
    stage.browser.click("#sign-switch");
    stage.shows("sign-chain", false);
    stage.text("wallet-chain", "Tiergate development chain (8004)");
    let settings = stage.call("GET", "/console/settings.json", None).success(200);
    assert_eq!(settings["chain"]["chainId"], "0x1f44");
    let expected = json!([settings["chain"]]);
    assert_eq!(stage.browser.command("report", true)["added"], expected);
    stage.sign();
    stage.key();
    stage.browser.click("#stored");

    // It goes elsewhere again, and refuses; another one signs all the same.
    stage.browser.command("wallet", json!({ "chain": "0x1" }));
    stage.text("wallet-chain", "1");
    stage.ask("#rotate");
    stage.shows("sign-chain", true);
    stage.text("sign-wallet", "anyway");
    stage.is_refused("The wallet does not sign for another chain than its active one.");
    stage.browser.until("document.getElementById('elsewhere').open");
    stage.browser.command("wallet", json!({ "isStrict": false }));
    stage.sign();
    stage.text("outcome", "The key is replaced");

    // Some never answer. The dialog can be left.
    stage.browser.command("wallet", json!({ "hangs": true }));
    stage.ask("#revoke");
    stage.browser.until("!document.getElementById('sign-wallet').disabled");
    stage.browser.click("#sign-wallet");
    stage.text("sign-wait", "Waiting for Test Wallet.");
    stage.cancel();
    stage.text("has-key", "Agent 2 has a key.");
    stage.has_kept_to_itself();
}
