//! Accessibility and size in every main state, in light and dark, on a desk and on a phone.

use serde_json::json;

use super::stage::{Stage, wallet};
use crate::support::signing::BOB;

/// Checks the page as it stands with axe-core, light and wide, then dark on a phone.
#[track_caller]
fn is_accessible(stage: &mut Stage, state: &str) {
    for (width, height, dark) in [(900, 1_000, false), (360, 740, true)] {
        stage.browser.look(width, height, dark);
        assert_eq!(stage.browser.command("axe", true), json!([]), "{state}, {width} wide, dark: {dark}");
        let is_within =
            "Math.max(document.documentElement.scrollWidth, document.getElementById('sign').scrollWidth)";
        let wide = stage.browser.until(is_within);
        assert!(wide.as_u64().unwrap() <= width.into(), "{state}: {wide} px");
    }
}

#[test]
fn axe_finds_nothing_serious_in_any_state_light_or_dark_wide_or_on_a_phone() {
    let mut away = wallet(&[BOB]);
    away["chain"] = json!("0x1");
    away["isStrict"] = json!(false);
    let Some(mut stage) = Stage::with_wallet(away) else { return };
    stage.open("2");
    is_accessible(&mut stage, "wallets");
    let light = stage.browser.until("getComputedStyle(document.body).backgroundColor");
    stage.browser.look(900, 1_000, false);
    assert_ne!(stage.browser.until("getComputedStyle(document.body).backgroundColor"), light);

    stage.connect();
    stage.ask("#generate");
    stage.shows("sign-chain", true);
    stage.browser.click("#elsewhere summary");
    stage.browser.write("#signature", "0x12");
    stage.browser.click("#signature-use");
    stage.text("signature-problem", "A signature is");
    is_accessible(&mut stage, "a request and a wrong signature");

    stage.sign();
    let key = stage.key();
    stage.ask("#read");
    stage.sign();
    stage.try_key(&key, "200");
    is_accessible(&mut stage, "profile, key and answer");

    stage.browser.click("#stored");
    stage.ask("#revoke");
    stage.browser.command("wallet", json!({ "refuses": true }));
    stage.is_refused("You refused in the wallet.");
    is_accessible(&mut stage, "a warning and a refusal");
    stage.has_kept_to_itself();
}
