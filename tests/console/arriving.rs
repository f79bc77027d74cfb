//! The page where a part of it is missing, where there is no wallet, and where the wallet's node knows the owner's agents.

use serde_json::json;

use super::stage::{Stage, wallet};
use crate::support::chain::Identity;
use crate::support::signing::{ALICE, BOB};
use alloy::primitives::U256;

/// The colour of an element's text and border.
const COLOURS: &str =
    "((style) => [style.color, style.borderTopColor])(getComputedStyle(document.getElementById('outcome')))";

#[test]
fn a_module_that_does_not_load_is_told_and_a_failure_is_not_shown_in_green() {
    let Some(mut stage) = Stage::start() else { return };
    let url = format!("{}/console", stage.url());
    let is_seen = "getComputedStyle(document.getElementById('unloaded')).visibility === 'visible'";
    for lost in ["/console/app.js", "/console/words.js", "/console/client/index.js"] {
        stage.browser.command("answers", json!({ lost: null }));
        stage.browser.open(&url);
        stage.browser.until(is_seen);
    }
    stage.browser.command("answers", json!({ "/console/settings.json": { "status": 502, "body": "" } }));
    stage.browser.open(&url);
    stage.text("outcome", "This page failed");
    let failed = stage.browser.until(COLOURS);
    stage.shows("unloaded", false);
    stage.browser.command("answers", json!({}));
    stage.open("1");
    let done = stage.browser.until(COLOURS);
    assert!(failed[0] == failed[1] && failed[1] != done[1], "{failed} {done}");
    stage.shows("unloaded", false);
}

#[test]
fn a_phone_without_a_wallet_is_sent_to_the_wallets_own_browser_with_the_address_to_copy() {
    let Some(mut stage) = Stage::start() else { return };
    // Without the sample accounts.
    let mut settings = stage.call("GET", "/console/settings.json", None).success(200);
    settings["developmentRpcUrl"] = json!(null);
    stage
        .browser
        .command("answers", json!({ "/console/settings.json": { "status": 200, "body": settings } }));
    stage.open("2");
    stage.shows("no-wallet", true);
    stage.shows("no-wallet-phone", false);
    stage.browser.command("look", json!({ "width": 390, "height": 844, "dark": false, "phone": true }));
    stage.open("2");
    stage.shows("no-wallet-phone", true);
    stage.shows("no-wallet", false);
    stage.browser.click("#copy-address");
    stage.text("outcome", "Copied.");
    let origin = stage.url();
    assert_eq!(stage.browser.command("clipboard", origin.as_str()), format!("{origin}/console?agent=2"));
}

#[test]
fn an_owners_agents_are_listed_where_the_registry_counts_them_or_its_logs_tell_them() {
    let mut with_node = wallet(&[ALICE, BOB]);
    let Some(mut stage) = Stage::with_wallet(with_node.clone()) else { return };
    stage.open("1");
    stage.connect();
    stage.shows("own-agents", false);
    // Of the logs that tell of her agents one is of an agent that is sold.
    let sold = Identity::transferFromCall { from: ALICE.address, to: BOB.address, id: U256::ONE };
    for _ in 0..2 {
        let mint = Identity::mintCall { to: ALICE.address, uri: "ipfs://card".to_owned() };
        stage.transact(ALICE, stage.registry(), &mint);
    }
    stage.transact(ALICE, stage.registry(), &sold);
    with_node["node"] = json!(format!("http://{}", stage.chain));
    // More than are listed came later, and are sold.
    with_node["gone"] = json!(20);
    stage.browser.command("wallet", with_node.clone());
    stage.open("1");
    stage.connect();
    let listed = "[...document.querySelectorAll('#own-agents:not([hidden]) button')].map((it) => it.textContent).join()";
    assert_eq!(stage.browser.until(listed), "6,7");
    with_node["owned"] = json!([40, 5]);
    stage.browser.command("wallet", with_node);
    stage.open("1");
    stage.connect();
    assert_eq!(stage.browser.until(listed), "5,40");
    stage.browser.click("#own-list button");
    stage.text("has-key", "Agent 5 has no key.");
    stage.has_kept_to_itself();
}
