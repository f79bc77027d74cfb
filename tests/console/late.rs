//! Keys, answers and wallets of one agent while another one is chosen.

use serde_json::json;

use super::stage::{Stage, wallet};
use crate::support::signing::{ALICE, BOB};

#[test]
fn a_key_stays_on_the_screen_until_its_owner_has_stored_it_also_when_another_agents_key_is_managed() {
    let Some(mut stage) = Stage::with_wallet(wallet(&[ALICE])) else { return };
    stage.call("POST", "/keys/generate", Some(&stage.draft(2, BOB).body())).success(201);
    stage.open("1");
    stage.connect();
    stage.browser.write("#endpoint", "https://app.example");
    stage.ask("#generate");
    stage.sign();
    let key = stage.key();
    find(&mut stage, "2");
    assert_eq!(stage.browser.command("evaluate", "document.getElementById('endpoint').value"), "");
    stage.browser.command("wallet", wallet(&[BOB]));
    stage.browser.click("#rotate");
    stage.text("outcome", "First store the key of agent 1");
    assert_eq!(stage.browser.command("evaluate", "document.getElementById('sign').open"), false);
    stage.ask("#revoke");
    stage.sign();
    stage.text("has-key", "Agent 2 has no key.");
    assert_eq!(stage.key(), key);
    stage.text("h-shown", "The key of agent 1");
    stage.browser.click("#stored");
    stage.ask("#generate");
    stage.sign();
    stage.text("h-shown", "The key of agent 2");
    assert_ne!(stage.key(), key);
    stage.has_kept_to_itself();
}

#[test]
fn a_late_answer_changes_nothing_about_another_agent() {
    let Some(mut stage) = Stage::with_wallet(wallet(&[ALICE])) else { return };
    stage.open("1");
    stage.connect();
    stage.ask("#read");
    stage.sign();
    // A search that is overtaken by another one, then one that is overtaken by a request.
    hold(&mut stage, "agentId=2");
    find_late(&mut stage, "2");
    find(&mut stage, "1");
    release(&mut stage);
    stage.text("has-key", "Agent 1 has no key.");
    stage.shows("profile", true);
    hold(&mut stage, "agentId=2");
    find_late(&mut stage, "2");
    stage.ask("#generate");
    release(&mut stage);
    stage.text("has-key", "Agent 1 has no key.");

    // A dialog that is closed before the answer: the key is shown, as the key of its agent.
    hold(&mut stage, "keys/generate");
    stage.browser.until("!document.getElementById('sign-wallet').disabled");
    stage.browser.click("#sign-wallet");
    stage.browser.until("window.isHeld");
    stage.browser.command("press", "Escape");
    stage.is_done();
    find(&mut stage, "2");
    release(&mut stage);
    stage.key();
    stage.text("h-shown", "The key of agent 1");
    stage.text("has-key", "Agent 2 has no key.");
    stage.shows("generate", true);
    stage.has_kept_to_itself();
}

fn find(stage: &mut Stage, agent: &str) {
    find_late(stage, agent);
    // Of an agent that is found already, what stands there says nothing of the answer.
    stage.text("outcome", &format!("Agent {agent} has"));
}

fn find_late(stage: &mut Stage, agent: &str) {
    stage.browser.write("#agent", agent);
    stage.browser.click("#find button");
}

/// The next answer to a URL with these words waits until it is released.
fn hold(stage: &mut Stage, words: &str) {
    let hold = "(() => {
        const real = window.fetch;
        window.isHeld = false;
        window.fetch = async (url, init) => {
            const answer = await real(url, init);
            if (!String(url).includes(WORDS)) return answer;
            window.fetch = real;
            const text = await answer.text();
            await new Promise((release) => Object.assign(window, { release, isHeld: true }));
            return new Response(text, answer);
        };
        return true;
    })()";
    stage.browser.until(&hold.replace("WORDS", &json!(words).to_string()));
}

/// Releases it, and waits for an answer that comes after it.
fn release(stage: &mut Stage) {
    stage.browser.until("window.isHeld");
    let later = "fetch('console/settings.json').then((answer) => answer.text())";
    stage.browser.until(&format!("(window.release(), {later})"));
}

#[test]
fn wallets_that_answer_late_or_never_are_not_waited_for() {
    let Some(mut stage) = Stage::with_wallet(wallet(&[BOB])) else { return };
    stage.open("2");
    stage.browser.until("document.querySelector('#wallets button').focus() ?? true");
    // Another wallet announces itself. It answers when it is told to.
    let slow = "(() => {
        const listeners = {};
        const wait = (method) => new Promise((answer) => (window[method] = answer));
        const provider = { request: ({ method }) => wait(method), on: (event, listener) => (listeners[event] = listener), removeListener() {} };
        const info = { uuid: 'slow', name: 'Slow' };
        window.changed = (accounts) => listeners.accountsChanged(accounts);
        window.dispatchEvent(new CustomEvent('eip6963:announceProvider', { detail: { info, provider } }));
        return true;
    })()";
    stage.browser.until(slow);
    stage.text("wallets", "Slow");
    let focused = stage.browser.until("document.activeElement.textContent");
    assert_eq!(focused, "Test Wallet");

    // The second one that is asked is connected first, and stays.
    let press_slow = "[...document.querySelectorAll('#wallets button')].find((it) => it.textContent === 'Slow').click() ?? true";
    stage.browser.until(press_slow);
    stage.connect();
    stage.browser.until("(window.eth_requestAccounts(['0xlate']), window.eth_chainId?.('0x1'), true)");
    stage.browser.until("window.wallet_revokePermissions || (window.eth_chainId?.('0x1'), false)");
    stage.text("wallet-account", &BOB.address.to_string());

    // A wallet that never answers to the revocation is left.
    stage.browser.command("wallet", json!({ "hangs": true }));
    stage.browser.click("#disconnect");
    stage.text("outcome", "Disconnected.");

    // The account changes while the page still asks for the chain.
    stage.browser.until("delete window.eth_chainId");
    stage.browser.until(press_slow);
    stage.browser.until("(window.eth_requestAccounts(['0xfirst']), true)");
    stage.browser.until("window.eth_chainId");
    stage.browser.until("(window.changed(['0xsecond']), window.eth_chainId('0x1'), true)");
    stage.text("wallet-account", "0xsecond");
    stage.has_kept_to_itself();
}
