//! Signing without a wallet of the browser, and deployments without gateway and public node.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use alloy::primitives::U256;
use serde_json::{Value, json};

use super::redirects::{run, show_the_key_to_no_other_server, snippets};
use super::stage::{Stage, signed_elsewhere, typed_data, wallet};
use crate::page::browser::Browser;
use crate::support::signing::{ALICE, Account, BOB, DEPLOYER};
use crate::support::{chain::Chain, service::Service, settings::Settings};

/// The stake of tier 4.
const DIAMOND: u128 = 500_000_000_000_000_000_000_000;

#[test]
fn a_signature_made_elsewhere_is_pasted_without_any_wallet() {
    let Some(mut stage) = Stage::start() else { return };
    stage.open("2");
    stage.ask("#generate");
    stage.browser.until("document.getElementById('elsewhere').open");
    stage.shows("sign-wallet", false);
    for command in
        ["cast wallet sign --data --from-file request.json --ledger", "tiergate keys generate --url"]
    {
        stage.text("commands", command);
    }
    let typed = typed_data(&mut stage);
    assert_eq!((&typed["primaryType"], &typed["message"]["agentId"]), (&json!("Verification"), &json!("2")));
    let file = "document.getElementById('typed-file').href";
    let file = stage.browser.until(&format!("decodeURIComponent({file}.split(',')[1])"));
    assert_eq!(serde_json::from_str::<Value>(file.as_str().unwrap()).unwrap(), typed);
    stage.browser.click("#typed-copy");
    stage.text("sign-wait", "Copied.");
    let origin = stage.url();
    let copied = stage.browser.command("clipboard", origin);
    assert_eq!(serde_json::from_str::<Value>(copied.as_str().unwrap()).unwrap(), typed);

    let paste = |stage: &mut Stage, text: &str| {
        stage.browser.write("#signature", text);
        stage.browser.until("!document.getElementById('signature-use').disabled");
        stage.browser.click("#signature-use");
    };
    let right = signed_elsewhere(&stage, &typed, BOB);
    for wrong in ["", "0x12", &right[2..], &format!("{right}00"), &right.replace("0x", "0xg")] {
        paste(&mut stage, wrong);
        stage.text("signature-problem", "A signature is 0x and 130 hex digits");
    }
    let strangers = signed_elsewhere(&stage, &typed, ALICE);
    paste(&mut stage, &strangers);
    stage.text("sign-problem", "This signature is not by the owner of agent 2.");
    // The request was not used up: the owner's signature of it is good.
    assert_eq!(typed_data(&mut stage), typed);
    paste(&mut stage, &format!("  {right}\n"));
    stage.is_done();
    let key = stage.key();
    stage.try_key(&key, "200");
    works_as_shown(&mut stage, "2", &key);
    stage.has_kept_to_itself();
}

// threat: A signature for one service, or for a verification, is spent on a key at another
#[test]
fn with_types_of_their_own_the_page_shows_the_services_name_and_each_change_is_signed_as_what_it_is() {
    let Some(mut browser) = Browser::start() else { return };
    browser.command("wallet", wallet(&[ALICE]));
    let chain = Chain::dev();
    let agent = chain.mint(ALICE, "ipfs://card").to_string();
    let settings = Settings::new(chain.node, &chain.contracts)
        .set("console.enabled", true)
        .set("signature.key_operations", "own_types")
        .set("signature.service_name", "Hafen's <b>");
    let mut stage = Stage::over(browser, Service::start(settings), chain);
    stage.open(&agent);
    stage.connect();
    stage.ask("#generate");
    stage.text("sign-facts", "ServiceHafen's <b>");
    stage.text("sign-note", "Compare the service's name.");
    stage.browser.click("#elsewhere summary");
    stage.text("commands", "--service-name 'Hafen'\\''s <b>' --agent-id");
    stage.sign();
    stage.key();
    stage.browser.click("#stored");
    stage.ask("#rotate");
    let typed = typed_data(&mut stage);
    assert_eq!(
        (&typed["primaryType"], &typed["message"]["service"]),
        (&json!("RotateKey"), &json!("Hafen's <b>"))
    );
    stage.browser.click("#elsewhere summary");
    let pasted = signed_elsewhere(&stage, &typed, ALICE);
    stage.browser.write("#signature", &pasted);
    stage.browser.until("!document.getElementById('signature-use').disabled");
    stage.browser.click("#signature-use");
    stage.is_done();
    stage.key();
    stage.browser.click("#stored");
    stage.ask("#revoke");
    stage.sign();
    stage.text("has-key", "has no key");
    stage.ask("#read");
    stage.text("sign-note", "The service takes this signature for reading only.");
    stage.sign();
    stage.has_kept_to_itself();
}

#[test]
fn where_the_operator_allows_it_an_agents_image_is_loaded_by_https_alone() {
    let Some(mut browser) = Browser::start() else { return };
    browser.command("wallet", wallet(&[ALICE]));
    let chain = Chain::dev();
    let mint = |image: &str| {
        chain.mint(ALICE, &format!("data:application/json,%7B%22image%22:%22{image}%22%7D")).to_string()
    };
    let shown = "https://images.example/a.png";
    let of_shown = mint(shown);
    let long = format!("https://images.example/{}", "a".repeat(2_048));
    let others = ["http://images.example/b.png", "data:image/png;base64,AA", "//images.example/c.png", &long];
    let of_others = others.map(mint);
    let settings =
        Settings::new(chain.node, &chain.contracts).set("console.enabled", true).set("console.images", true);
    let mut stage = Stage::over(browser, Service::start(settings), chain);
    stage.browser.command("answers", json!({ "/a.png": { "status": 200, "body": null } }));
    stage.open(&of_shown);
    stage.connect();
    stage.ask("#read");
    stage.sign();
    let image = stage.browser.until("document.querySelector('#profile img')?.complete && document.querySelector('#profile img').outerHTML");
    assert!(image.as_str().unwrap().contains("referrerpolicy=\"no-referrer\""), "{image}");
    stage.text("loads", "nothing from elsewhere but an agent's own image");
    for agent in of_others {
        stage.open(&agent);
        stage.connect();
        stage.ask("#read");
        stage.sign();
        stage.text("profile-facts", "Metadata URI");
        stage.browser.until("!document.querySelector('#profile img')");
    }
    let report = stage.browser.command("report", true);
    let asked = report["requested"].as_array().unwrap().iter();
    let asked: BTreeSet<_> = asked.filter_map(Value::as_str).filter(|url| url.contains("images.")).collect();
    assert_eq!(asked, [shown].into());
    let own = stage.url();
    assert_eq!(stage.browser.has_asked_only(&[&own, "https://images.example"]), [""; 0]);
}

#[test]
fn the_injected_wallet_is_used_where_none_announces_itself_and_copying_needs_no_clipboard() {
    let mut injected = wallet(&[BOB]);
    injected["announces"] = json!(false);
    let Some(mut stage) = Stage::with_wallet(injected) else { return };
    stage.open("2");
    stage.text("wallets", "Browser wallet");
    stage.connect();
    stage.ask("#generate");
    stage.sign();
    let key = stage.key();
    // As on a page that did not come over TLS.
    stage.browser.until("(navigator.clipboard.writeText = () => Promise.reject(new Error('no'))), true");
    stage.browser.click("#copy-key");
    stage.text("outcome", "Copied.");
    let origin = stage.url();
    assert_eq!(stage.browser.command("clipboard", origin), *key);
    stage.has_kept_to_itself();
}

// threat: The owner's page is framed, runs a text, or keeps a key
#[test]
fn without_gateway_and_public_node_a_contract_wallet_signs_elsewhere_and_its_key_is_verified() {
    let Some(mut browser) = Browser::start() else { return };
    let mut away = wallet(&[BOB]);
    away["chain"] = json!("0x1");
    browser.command("wallet", away);
    let chain = Chain::dev();
    let safe = Account { address: chain.deploy("KeyWallet"), key: DEPLOYER.key };
    let agent = chain.mint(ALICE, "ipfs://card");
    chain.transfer(ALICE, safe, agent);
    chain.stake(agent, U256::from(DIAMOND));
    let settings = Settings::new(chain.node, &chain.contracts)
        .set("console.enabled", true)
        .set("console.title", "<b>Harbour</b>")
        .set("signature.contracts", true);
    let mut stage = Stage::over(browser, Service::start(settings), chain);

    stage.open(&agent.to_string());
    stage.text("title", "<b>Harbour</b>");
    stage.shows("try", false);
    stage.connect();
    stage.text("wallet-chain", "1");
    stage.ask("#generate");
    stage.text("sign-chain-words", "switch its chain there, or sign elsewhere");
    stage.shows("sign-switch", false);
    stage.browser.click("#elsewhere summary");
    stage.text("commands", "off-chain message of the Safe");
    stage.browser.write("#signature", "0x1");
    stage.browser.click("#signature-use");
    stage.text("signature-problem", "0x and at least 130 hex digits");
    let typed = typed_data(&mut stage);
    let longer = |signer| format!("{}{}", signed_elsewhere(&stage, &typed, signer), "5a".repeat(65));
    let (strangers, owners) = (longer(BOB), longer(DEPLOYER));
    stage.browser.write("#signature", &strangers);
    stage.browser.click("#signature-use");
    stage.text("sign-problem", &format!("This signature is not by the owner of agent {agent}."));
    stage.text("sign-problem", &safe.address.to_string());
    stage.browser.write("#signature", &owners);
    stage.browser.until("!document.getElementById('signature-use').disabled");
    stage.browser.click("#signature-use");
    stage.is_done();
    let key = stage.key();
    let url = format!("{}/verify", stage.url());
    stage.text("snippets", &url);
    works_as_shown(&mut stage, &agent.to_string(), &key);
    stage.has_kept_to_itself();
}

#[test]
fn the_commands_for_the_command_line_are_typed_as_the_page_shows_them() {
    let Some(mut stage) = Stage::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let owner_key = folder.path().join("owner.key");
    fs::write(&owner_key, BOB.key).unwrap();
    fs::set_permissions(owner_key, fs::Permissions::from_mode(0o600)).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_tiergate")).parent().unwrap();
    stage.open("2");
    for (operation, has_key) in [("generate", true), ("rotate", true), ("revoke", false)] {
        stage.ask(&format!("#{operation}"));
        let texts = "[...document.querySelectorAll('#commands pre')].map((pre) => pre.textContent)";
        let texts: Vec<String> = serde_json::from_value(stage.browser.until(texts)).unwrap();
        let typed = texts.iter().find(|text| text.starts_with("tiergate ")).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", typed]).current_dir(folder.path());
        let output = shell.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{typed}: {output:?}");
        let status = stage.call("GET", "/keys/status?agentId=2", None).success(200);
        assert_eq!(status["hasKey"], has_key, "{typed}");
        stage.cancel();
        stage.open("2");
    }
}

// threat: An owner signs unawares, or revokes by a slip
#[test]
fn a_contract_account_hears_that_contracts_are_off_or_that_it_is_not_deployed() {
    let tail = "5a".repeat(65);
    for (takes_contracts, wraps, words) in [
        (false, false, "If the account is a contract"),
        (true, true, "not deployed yet on the chain of the agents"),
        (true, false, "must be deployed on the chain of the agents"),
    ] {
        let Some(mut browser) = Browser::start() else { return };
        let mut contract = wallet(&[ALICE]);
        contract["tail"] = json!(tail);
        contract["wraps"] = json!(wraps);
        browser.command("wallet", contract);
        let chain = Chain::dev();
        let agent = chain.mint(ALICE, "ipfs://card").to_string();
        let settings = Settings::new(chain.node, &chain.contracts)
            .set("console.enabled", true)
            .set("signature.contracts", takes_contracts);
        let mut stage = Stage::over(browser, Service::start(settings), chain);
        stage.open(&agent);
        stage.connect();
        stage.ask("#generate");
        stage.is_refused(words);
        let said = stage.browser.until("document.getElementById('sign-problem').textContent");
        assert!(!said.as_str().unwrap().contains("whole signature"), "{said}");
        stage.cancel();
        if takes_contracts {
            continue;
        }
        stage.ask("#generate");
        stage.browser.click("#elsewhere summary");
        let typed = typed_data(&mut stage);
        let longer = format!("{}{tail}", signed_elsewhere(&stage, &typed, ALICE));
        stage.browser.write("#signature", &longer);
        stage.browser.click("#signature-use");
        stage.text("signature-problem", words);
    }
}

/// Runs the programs that the page shows.
fn works_as_shown(stage: &mut Stage, agent: &str, key: &str) {
    let texts = snippets(stage);
    for printed in run(&texts, key) {
        assert!(printed.contains("200") && printed.contains(&format!("\"{agent}\"")), "{printed}");
    }
    show_the_key_to_no_other_server(&texts, key);
}
