//! `tiergate explain` says what the gateway decides, and why, and charges nothing for it.

use std::{fs, process::Output};

use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage};
use crate::rig::{identity::everyone_is_gold, site::Site, tenants::Tenant};
use crate::support::process::{free_port, own_ip};
use crate::support::signing::{ALICE, BOB};
use crate::support::time::{SOON, until};
use crate::support::{agents::unknown_key, wire::Request, world::Kind};

pub(crate) const CASES: &[Case] = cases![
    explain_decides_as_the_gateway_does,
    a_key_is_looked_up_in_a_shared_store_only,
    a_key_that_has_ended_with_its_signer_is_explained_as_the_gateway_answers,
];

pub(crate) const IN_WORDS: &[Case] = cases![
    explain_names_what_shadows_and_is_shadowed,
    explain_says_when_the_chain_cannot_be_read,
    explain_names_the_source_of_a_tier_and_a_stake_only_where_a_vault_is_read,
    a_tenant_that_other_gateways_ask_for_is_explained_by_its_id,
];

const OTHER: &str = "other.acme.test";

fn site(stage: &Stage) -> Site {
    let site = Site::of(stage).set("web_bot_auth.private_domains", vec!["known.test"]).tenant(|tenant| {
        tenant
            .route("/denied/*", "access = \"deny\"")
            .route("/gold/special", "min_tier = 3\nmethods = [\"POST\"]")
            .route("/gold/*", "min_tier = 3")
            .route("/few/*", "access = \"public\"\nrequests_per_minute = 7\nbot_requests_per_minute = 30")
            .route("/*/special", "min_tier = 2")
            .route("/posted", "methods = [\"POST\"]")
            .route("/posted", "access = \"deny\"")
    });
    let site = site.also(|upstream| Tenant::of("rest", &["*.acme.test", "*"], &[&upstream.to_string()]));
    site.also(|upstream| {
        Tenant::new("keyless", "keyless.test", upstream).set("credentials", vec!["signature"])
    })
    .start()
}

fn explain(site: &Site, host: &str, path: &str, further: &[&str]) -> Output {
    let arguments = [&["--host", host, "--path", path], further].concat();
    site.gateway.service.command("explain", &arguments)
}

/// The JSON that it prints.
#[track_caller]
fn explained(site: &Site, host: &str, path: &str, further: &[&str]) -> Value {
    let output = explain(site, host, path, &[further, &["-o", "json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn explain_decides_as_the_gateway_does(stage: &Stage) {
    let site = &site(stage);
    let agents = [0, 1, 3].map(|tier| stage.world().agent(tier));
    let keys = agents.each_ref().map(|agent| agent.generate(&site.gateway.service));
    for (host, method, path) in [
        (ACME, "GET", "/public/x"),
        (ACME, "GET", "/.well-known/tiergate"),
        (OTHER, "GET", "/.well-known/oauth-protected-resource/x"),
        (ACME, "GET", "/x"),
        (ACME, "GET", "/gold/x?y"),
        (ACME, "GET", "/public/%2e%2e/gold/x"),
        (ACME, "GET", "/denied/x"),
        (ACME, "TRACE", "/x"),
        (ACME, "GET", "/posted"),
        (ACME, "GET", "/.well-known/openid-configuration/x"),
        (ACME, "POST", "/register"),
        ("not a host", "GET", "/x"),
    ] {
        // Who asks matters where agents alone pass.
        let by = if path.contains('x') && method == "GET" {
            &[None, Some(0), Some(1), Some(2)][..]
        } else {
            &[None]
        };
        for at in by.iter().copied() {
            let request = Request::new(method, host, path);
            let (request, agent) = match at {
                Some(at) => (request.key(&keys[at]), Some(agents[at].text())),
                None => (request, None),
            };
            let by = agent.iter().flat_map(|agent| ["--agent-id", agent]);
            let by: Vec<&str> = ["--method", method].into_iter().chain(by).collect();
            // It is asked first: an agent of tier 1 has one request a minute.
            let before = explained(site, host, path, &by);
            let answer = site.gateway.ask(&request);
            if at == Some(1) && answer.status == 429 {
                assert_eq!((&before["decision"], &before["limit"]), (&"admitted".into(), &1.into()));
                continue;
            }
            let is_let_through =
                ["admitted", "described", "public"].map(Value::from).contains(&before["decision"]);
            assert_eq!(is_let_through, answer.status == 200, "{method} {host}{path} {agent:?}: {before}");
            if !is_let_through {
                let body = answer.json();
                assert_eq!(before["status"], answer.status, "{before}");
                assert_eq!((&before["errorType"], &before["error"]), (&body["errorType"], &body["error"]));
            }
        }
    }
    for (bot, limit) in [(None, 7), (Some("known.test"), 30), (Some("stranger.test"), 7)] {
        let by: Vec<&str> = bot.iter().flat_map(|bot| ["--bot", bot]).collect();
        assert_eq!(explained(site, ACME, "/few/x", &by)["limit"], limit, "{bot:?}");
    }
    let gold = explained(site, ACME, "/gold/x", &["--agent-id", &agents[1].text()]);
    assert_eq!((&gold["tier"], &gold["minTier"]), (&1.into(), &3.into()), "{gold}");
    assert_eq!((&gold["route"], &gold["tenant"]), (&"/gold/*".into(), &"t".into()), "{gold}");
    assert_eq!(gold["minStake"], "100000000000000000000000", "{gold}");
    assert_eq!(explained(site, ACME, "/x", &["--agent-id", "4000000"])["errorType"], "AGENT_NOT_FOUND");
    assert_eq!(explained(site, ACME, "/x", &["--agent-id", "0"])["errorType"], "AGENT_NOT_FOUND");
}

fn a_key_is_looked_up_in_a_shared_store_only(stage: &Stage) {
    let site = &site(stage);
    let agent = stage.world().agent(2);
    let file = site.gateway.service.folder.path().join("key");
    let by_key = |host: &str, key: &str| {
        fs::write(&file, format!("{key}\n")).unwrap();
        let output = explain(site, host, "/x", &["--api-key-file", file.to_str().unwrap(), "-o", "json"]);
        let report = [output.stdout.as_slice(), &output.stderr].concat();
        assert!(!String::from_utf8(report).unwrap().contains(&key[12..28]), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let key = agent.generate(&site.gateway.service);
    let known = by_key(ACME, &key);
    if stage.world().is(Kind::Redis) {
        assert_eq!((&known["agent"], &known["decision"]), (&agent.text().into(), &"admitted".into()));
        assert_eq!(by_key(ACME, &unknown_key(7))["errorType"], "INVALID_API_KEY");
        site.gateway.service.revoke(&agent.signed()).success(200);
        assert_eq!(by_key(ACME, &key)["errorType"], "INVALID_API_KEY");
        // The next file's nonces are kept for longer, in a Redis that is for no chain yet.
        let redis = stage.world().redis();
        let url = redis.database();
        let number = url.rsplit_once('/').unwrap().1.parse().unwrap();
        let before = redis.dump(number);
        let file = site.gateway.service.folder.path().join("tiergate.toml");
        let mut next: toml::Table = fs::read_to_string(&file).unwrap().parse().unwrap();
        next["store"]["redis"]["url"] = url.into();
        next.insert("signature".into(), toml::toml! { max_ahead = "1h" nonce_retention = "2h" }.into());
        fs::write(&file, next.to_string()).unwrap();
        assert_eq!(by_key(ACME, &key)["errorType"], "INVALID_API_KEY");
        assert!(redis.dump(number) == before, "explain writes into Redis");
    } else {
        assert_eq!(known["decision"], "unknown");
        assert!(known["agent"].as_str().unwrap().contains("embedded store"), "{known}");
    }
    assert_eq!(by_key(ACME, &format!("{key}0"))["errorType"], "VALIDATION_ERROR");
    assert_eq!(by_key("keyless.test", &key)["errorType"], "INVALID_API_KEY");
}

fn explain_names_the_source_of_a_tier_and_a_stake_only_where_a_vault_is_read(stage: &Stage) {
    let (agent, staked) = (stage.world().agent(1), json!("1000000000000000000000"));
    for (has_vault, stake) in [(true, Some(&staked)), (false, None)] {
        let site = everyone_is_gold(Site::of(stage), has_vault).start();
        let report = explained(&site, ACME, "/x", &["--agent-id", &agent.text()]);
        assert_eq!((&report["tier"], &report["tierSource"]), (&json!(3), &json!("everyone")), "{report}");
        assert_eq!((report.get("stake"), report.get("minStake")), (stake, stake), "{report}");
    }
}

fn a_key_that_has_ended_with_its_signer_is_explained_as_the_gateway_answers(stage: &Stage) {
    let site = &Site::of(stage).set("keys.end_with_signer", true).start();
    let agent = stage.world().agent(2);
    let file = site.gateway.service.folder.path().join("key");
    let key = agent.generate(&site.gateway.service);
    fs::write(&file, &key).unwrap();
    let report = || explained(site, ACME, "/x", &["--api-key-file", file.to_str().unwrap()]);
    let before = report();
    if !stage.world().is(Kind::Redis) {
        assert_eq!(before["decision"], "unknown");
        return;
    }
    assert_eq!(
        (&before["decision"], &before["keySigner"]),
        (&json!("admitted"), &before["owner"]),
        "{before}"
    );
    stage.world().chain().transfer(ALICE, BOB, agent.id);
    let after = report();
    assert_eq!((&after["status"], &after["errorType"]), (&json!(401), &json!("INVALID_API_KEY")), "{after}");
    assert_eq!(
        (&after["keySigner"], &after["owner"]),
        (&before["owner"], &json!(BOB.address.to_checksum(None)))
    );
    assert!(after["keyWhy"].as_str().unwrap().contains("ended"), "{after}");
    until("the gateway refuses it", SOON, || {
        let answer = site.gateway.ask(&Request::new("GET", ACME, "/x").key(&key));
        (answer.status == 401).then(|| assert_eq!(answer.json()["error"], after["error"]))
    });
}

fn explain_names_what_shadows_and_is_shadowed(stage: &Stage) {
    let site = &site(stage);
    for (host, path, method, expected) in [
        (
            ACME,
            "/gold/special",
            "POST",
            json!({
                "tenant": "t",
                "host": "acme.test",
                "hostWhy": "the most precise that matches",
                "otherHosts": ["* of rest"],
                "route": "POST /gold/special",
                "routeWhy": "the first route that takes the request",
                "otherRoutes": ["/gold/*", "/*/special"],
            }),
        ),
        (OTHER, "/", "GET", json!({ "host": "*.acme.test", "otherHosts": ["* of rest"] })),
        (ACME, "/gold/special", "GET", json!({ "route": "/gold/*", "otherRoutes": ["/*/special"] })),
        (
            ACME,
            "/x",
            "GET",
            json!({ "route": "none", "credentials": ["api_key", "signature"], "decision": "refused" }),
        ),
        (
            ACME,
            "/public/..;/denied/x",
            "GET",
            json!({
                "route": "/public/*",
                "routeWhy": "the path is ambiguous: the strictest of all routes that may be meant count",
                "otherRoutes": ["/denied/*", "/gold/*", "/few/*", "/*/special", "/posted"],
                "errorType": "FORBIDDEN",
            }),
        ),
    ] {
        let report = explained(site, host, path, &["--method", method]);
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&report[name], value, "{name} in {report}");
        }
    }
    let text = String::from_utf8(explain(site, ACME, "/x", &[]).stdout).unwrap();
    assert!(text.lines().any(|line| line == "errorType      INVALID_API_KEY"), "{text}");
    for (host, path, expected, code) in [
        (ACME, "/x", "refuse", 0),
        (ACME, "/x", "admit", 1),
        (ACME, "/public/x", "admit", 0),
        (ACME, "/public/x", "refuse", 1),
        (ACME, "/.well-known/tiergate", "admit", 1),
        (ACME, "/.well-known/tiergate", "refuse", 1),
        ("not a host", "/x", "refuse", 1),
    ] {
        let output = explain(site, host, path, &["--expect", expected]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{host} {path} {expected}: {said}");
        assert_eq!(said.contains(&format!("expected is {expected}, but ")), code == 1, "{said}");
        assert!(String::from_utf8(output.stdout).unwrap().contains("decision  "), "{path}");
    }
}

fn explain_says_when_the_chain_cannot_be_read(stage: &Stage) {
    let site = Site::of(stage).start();
    let file = site.gateway.service.folder.path().join("tiergate.toml");
    let text = fs::read_to_string(&file).unwrap();
    let node = stage.world().chain().node.to_string();
    fs::write(&file, text.replace(&node, "127.0.0.1:1")).unwrap();
    let report = explained(&site, ACME, "/x", &["--agent-id", "1"]);
    assert_eq!(
        (&report["decision"], &report["errorType"]),
        (&"unknown".into(), &"RPC_ERROR".into()),
        "{report}"
    );
    assert!(report["fault"].as_str().unwrap().contains("127.0.0.1:1"), "{report}");
}

/// It has no host, and no document of the gateway.
fn a_tenant_that_other_gateways_ask_for_is_explained_by_its_id(stage: &Stage) {
    let site = Site::of(stage).set("listen.authz", vec![free_port(own_ip()).to_string()]);
    let asked = Tenant::asked("asked").public().set("min_tier", 3);
    let site = site.also(|_| asked).start();
    let explained = |id: &str, path: &str, further: &[&str]| -> Value {
        let arguments = [&["--tenant", id, "--path", path, "-o", "json"], further].concat();
        let output = site.gateway.service.command("explain", &arguments);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (two, three) = (stage.world().agent(2).text(), stage.world().agent(3).text());
    for (path, agent, decision, status) in [
        ("/public/x", &two, "public", Value::Null),
        ("/x", &two, "refused", json!(403)),
        ("/x", &three, "admitted", Value::Null),
        ("/.well-known/tiergate", &three, "admitted", Value::Null),
    ] {
        let said = explained("asked", path, &["--agent-id", agent]);
        assert_eq!((&said["decision"], &said["status"]), (&json!(decision), &status), "{path} {said}");
        assert_eq!(said["tenant"], json!("asked"));
    }
    assert_eq!(explained("nobody", "/x", &["--agent-id", &three])["status"], json!(404));
    let both = site.gateway.service.command("explain", &["--tenant", "asked", "--host", ACME]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}
