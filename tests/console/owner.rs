//! The way from a wallet to the first request, and back to an agent without a key.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::redirects;
use super::stage::{Stage, wallet};
use crate::support::signing::{ALICE, BOB};

// threat: The owner's page is framed, runs a text, or keeps a key
// threat: An owner signs unawares, or revokes by a slip
#[test]
fn an_owner_reads_the_agent_and_makes_copies_tries_replaces_and_revokes_its_key() {
    let Some(mut stage) = Stage::with_wallet(wallet(&[ALICE])) else { return };
    stage.browser.look(900, 1_000, false);
    stage.open("1");
    stage.text("has-key", "Agent 1 has no key.");
    assert_eq!(stage.browser.until("document.title"), "Agent keys – Tiergate");
    stage.connect();
    stage.text("wallet-account", &ALICE.address.to_string());
    stage.text("wallet-chain", "Tiergate development chain (8004)");

    stage.ask("#read");
    stage.text("sign-title", "Read the profile of agent 1");
    stage.text("sign-facts", "Read the profile. Changes nothing.");
    stage.text("sign-facts", "Service Verification 1, chain 8004");
    stage.sign();
    for fact in [
        &*format!("Owner{}", ALICE.address),
        "Tier1 (Bronze)",
        "Stake1,000 tokens",
        "Next tierSilver needs 10,000 tokens: 9,000 tokens more",
        "Requests1 request a minute",
        "Reputationno feedback yet",
        "Validationsnone yet",
        "Organizationsnone",
        "Metadata URIipfs://bafkrei",
    ] {
        stage.text("profile-facts", fact);
    }

    stage.ask("#generate");
    stage.text("sign-facts", "Make the agent's API key");
    stage.text("sign-facts", "; once");
    stage.sign();
    let key = stage.key();
    stage.text("outcome", "Copy it now");
    stage.text("key-rest", "9 of 10 key operations are left this hour.");
    assert_eq!(stage.browser.until("document.activeElement.id"), "h-shown");
    // The label says so for two seconds alone.
    stage.browser.until("new MutationObserver(([{ target }]) => (window.label ??= target.textContent)).observe(document.getElementById('copy-key'), { childList: true }) ?? true");
    stage.browser.click("#copy-key");
    stage.browser.until("window.label === 'Copied'");
    // Screen readers say what stands here.
    stage.text("outcome", "Copied.");
    let origin = stage.url();
    assert_eq!(stage.browser.command("clipboard", origin), *key);
    for language in ["curl", "TypeScript", "Python"] {
        stage.text("snippets", language);
    }
    let snippets = stage.browser.until("document.getElementById('snippets').textContent");
    // They end in histories and in lists of processes.
    assert!(!snippets.as_str().unwrap().contains(&key));
    redirects::show_the_key_to_no_other_server(&redirects::snippets(&mut stage), &key);

    is_limited_after_one_request(&mut stage, &key);

    stage.browser.click("#stored");
    has_forgotten(&mut stage, &key);
    stage.ask("#rotate");
    stage.text("sign-warning", "The old key stops working at once.");
    stage.sign();
    let new = stage.key();
    stage.browser.until("document.getElementById('try-key').value === document.getElementById('key').value");
    stage.browser.click("#stored");
    has_forgotten(&mut stage, &new);
    stage.try_key(&key, "401");
    stage.text("try-problem", "This key is not valid: it was replaced or revoked");

    stage.ask("#revoke");
    stage.text("sign-warning", "The key stops working at once and for good.");
    stage.sign();
    stage.text("has-key", "Agent 1 has no key.");
    stage.text("key-rest", "7 of 10 key operations are left this hour.");
    stage.try_key(&new, "401");
    // The page is left, and may be kept for the button that goes back.
    stage.browser.until("window.dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))");
    has_forgotten(&mut stage, &new);
    stage.shows("try-answer", false);

    let report = stage.browser.command("report", true);
    let signed = report["signed"].as_array().unwrap();
    let types: Vec<&str> = signed.iter().map(|signed| signed["primaryType"].as_str().unwrap()).collect();
    assert_eq!(types, ["ProfileRead", "Verification", "Verification", "Verification"]);
    let nonces: BTreeSet<&str> =
        signed.iter().filter_map(|signed| signed["message"]["nonce"].as_str()).collect();
    assert_eq!(nonces.len(), 3);
    stage.browser.click("#disconnect");
    stage.shows("wallet-off", true);
    stage.has_kept_to_itself();
}

/// Tries the key of an agent of tier 1, which has one request a minute.
fn is_limited_after_one_request(stage: &mut Stage, key: &str) {
    stage.try_key(key, "200");
    stage.text("try-status", "0 of 1 requests are left this minute.");
    stage.text("try-headers", "x-request-id");
    stage.text("try-body", "\"x-agent-id\": \"1\"");
    stage.browser.click("#try-send");
    stage.text("try-status", "The answer is 429");
    stage.text("try-problem", "the limit of 1 is reached");
    stage.text("try-wait", "You can send again in ");
    stage.browser.until("document.getElementById('try-send').disabled");
    stage.pass(60);
    stage.text("try-wait", "You can send again now.");
    stage.browser.until("!document.getElementById('try-send').disabled");
    stage.pass_back(60);
    stage.browser.picture("console.png");
}

/// Fails when the key is anywhere in the page or the browser's storage.
fn has_forgotten(stage: &mut Stage, key: &str) {
    stage.shows("key-shown", false);
    let traces = "document.documentElement.outerHTML + [...document.querySelectorAll('input, textarea')].map((field) => field.value) + location.href";
    let traces = stage.browser.until(traces).as_str().unwrap().to_owned();
    assert!(!traces.contains(key));
    let stored = "document.cookie === '' && localStorage.length + sessionStorage.length === 0";
    stage.browser.until(&format!("indexedDB.databases().then((all) => all.length === 0 && {stored})"));
}

/// Presses Tab until this element has the focus.
fn tab_to(stage: &mut Stage, id: &str) {
    let mut passed = Vec::new();
    while passed.len() < 80 {
        stage.browser.command("press", "Tab");
        let focus = stage.browser.command("evaluate", "document.activeElement.id");
        if focus == *id {
            return;
        }
        passed.push(focus);
    }
    panic!("{id} is not among {passed:?}");
}

fn press(stage: &mut Stage, key: &str) {
    stage.browser.command("press", key);
}

#[test]
fn the_keyboard_alone_is_enough() {
    let Some(mut stage) = Stage::with_wallet(wallet(&[BOB])) else { return };
    let url = format!("{}/console", stage.url());
    stage.browser.open(&url);
    stage.browser.until("document.querySelector('#wallets button')");
    let focus = "[document.activeElement].filter((it) => it !== document.body).map((it) => it.textContent || it.id).join()";
    let has_focus = |stage: &mut Stage, text: &str| {
        stage.browser.until(&format!("({focus}).includes({})", json!(text)));
    };
    press(&mut stage, "Tab");
    has_focus(&mut stage, "Skip to the steps");
    press(&mut stage, "Tab");
    has_focus(&mut stage, "Test Wallet");
    press(&mut stage, "Enter");
    has_focus(&mut stage, "agent");
    press(&mut stage, "2");
    press(&mut stage, "Enter");
    stage.text("has-key", "Agent 2 has no key.");

    // Escape leaves the dialog, and the focus comes back.
    tab_to(&mut stage, "generate");
    press(&mut stage, "Enter");
    has_focus(&mut stage, "Make a key for agent 2");
    press(&mut stage, "Escape");
    has_focus(&mut stage, "Make a key");
    stage.is_done();
    press(&mut stage, "Enter");
    stage.browser.until("!document.getElementById('sign-wallet').disabled");
    tab_to(&mut stage, "sign-wallet");
    press(&mut stage, "Enter");
    has_focus(&mut stage, "The key of agent 2");
    let key = stage.key();
    tab_to(&mut stage, "copy-key");
    press(&mut stage, "Enter");
    stage.text("outcome", "Copied.");
    tab_to(&mut stage, "try-send");
    press(&mut stage, "Enter");
    stage.text("try-status", "15 of 16 requests are left");
    tab_to(&mut stage, "stored");
    press(&mut stage, "Enter");
    has_focus(&mut stage, "try-key");
    let origin = stage.url();
    assert_eq!(stage.browser.command("clipboard", origin), *key);
    stage.has_kept_to_itself();
}

#[test]
fn sample_accounts_sign_without_a_wallet_and_the_owner_of_the_agent_is_chosen() {
    let Some(mut stage) = Stage::start() else { return };
    stage.open("2");
    stage.browser.click("#wallets button");
    stage.text("wallet-name", "Sample accounts of the development chain");
    let chosen = "document.getElementById('wallet-accounts').value";
    assert_eq!(stage.browser.until(chosen).as_str().unwrap().parse(), Ok(BOB.address));
    stage.ask("#generate");
    stage.sign();
    let key = stage.key();
    stage.try_key(&key, "200");
    stage.browser.click("#stored");
    // Another account is another owner's.
    stage.browser.until(
        "(() => { const accounts = document.getElementById('wallet-accounts'); accounts.selectedIndex = 1; \
         accounts.dispatchEvent(new Event('change')); return true; })()",
    );
    // Until its agents are listed, what stands below moves.
    stage.browser.until("document.getElementById('own-agents').innerText.trim().endsWith('1')");
    stage.ask("#rotate");
    stage.is_refused("is not the owner of agent 2");
    stage.cancel();
    stage.shows("owner-note", true);
    stage.has_kept_to_itself();
}

// threat: The owner's page is framed, runs a text, or keeps a key
#[test]
fn texts_of_the_chain_and_of_wallets_are_shown_as_text() {
    use crate::support::chain::{Identity, Organizations, Validation};
    use alloy::primitives::U256;

    let markup = "<img src=x onerror=alert(1)>";
    let link = "javascript:alert(1)";
    let mut hostile: Value = wallet(&[ALICE]);
    hostile["name"] = json!(markup);
    hostile["icon"] = json!(link);
    hostile["others"] = json!([{ "name": "x".repeat(500), "icon": "https://evil.example/icon.png" }]);
    let Some(mut stage) = Stage::with_wallet(hostile) else { return };
    let (identity, agent) = (stage.registry(), U256::from(6));
    stage.transact(ALICE, identity, &Identity::mintCall { to: ALICE.address, uri: link.to_owned() });
    let (validation, organizations) = (stage.contract("validation"), stage.contract("organization"));
    let evidence = markup.to_owned();
    let validate = Validation::submitValidationCall { agentId: agent, passed: true, evidence };
    stage.transact(BOB, validation, &validate);
    let name = "<script>alert(1)</script>".to_owned();
    stage.transact(BOB, organizations, &Organizations::createOrganizationCall { name });
    let join = Organizations::addMemberCall { orgId: U256::from(3), agentId: agent };
    stage.transact(BOB, organizations, &join);

    stage.open("6");
    stage.text("wallets", markup);
    let longest = stage.browser.until("Math.max(...[...document.querySelectorAll('#wallets button')].map((button) => button.textContent.length))");
    assert!(longest.as_u64().unwrap() <= 60);
    stage.connect();
    stage.ask("#read");
    stage.sign();
    stage.text("profile-facts", "Tier0 (Unverified)");
    stage.text("profile-facts", &format!("Evidence{markup}"));
    stage.text("profile-facts", &format!("Metadata URI{link}"));
    stage.text("profile-facts", "<script>alert(1)</script> (number 3, not verified)");
    stage
        .browser
        .until("document.querySelectorAll('#profile :is(a, img, script), #wallets img').length === 0");
    stage.has_kept_to_itself();
}

#[test]
fn a_registration_in_the_metadata_uri_is_shown_as_text_and_no_other_is_fetched() {
    use crate::support::chain::Identity;
    use alloy::hex;

    let file = json!({
        "type": "https://eips.ethereum.org/EIPS/eip-8004#registration-v1",
        "name": "<b>Wetter</b> ü",
        "image": "https://evil.example/image.png",
        "services": [
            { "name": "A2A", "endpoint": "https://agent.example/.well-known/agent-card.json" },
            { "endpoint": "javascript:alert(1)" },
            { "name": "of no endpoint" },
            7,
        ],
    });
    let escaped = |byte: &u8| format!("%{}", hex::encode([*byte]));
    let whole: String = file.to_string().as_bytes().iter().map(escaped).collect();
    let Some(mut stage) = Stage::with_wallet(wallet(&[ALICE])) else { return };
    let identity = stage.registry();
    for uri in [
        format!("data:application/json,{whole}"),
        "data:application/json;base64,eyJuYW1lIjoiw7wifQ==".to_owned(),
        "data:application/json;base64,eyJuYW1lIjoiw7wif".to_owned(),
    ] {
        stage.transact(ALICE, identity, &Identity::mintCall { to: ALICE.address, uri });
    }
    stage.open("6");
    stage.connect();
    stage.ask("#read");
    stage.sign();
    stage.text("profile-facts", "Registered as<b>Wetter</b> ü");
    stage.text("profile-facts", "ServicesA2A: https://agent.example/.well-known/agent-card.json");
    stage.text("profile-facts", "without a name: javascript:alert(1)Metadata URI");
    stage.browser.until("document.querySelectorAll('#profile :is(a, img, b)').length === 0");
    stage.open("7");
    stage.connect();
    stage.ask("#read");
    stage.sign();
    stage.text("profile-facts", "Registered asüMetadata URI");
    stage.open("8");
    stage.connect();
    stage.ask("#read");
    stage.sign();
    stage.text("profile-facts", "OrganizationsnoneMetadata URIdata:");
    stage.browser.until("!document.getElementById('profile-facts').textContent.includes('Registered')");
    stage.has_kept_to_itself();
}
