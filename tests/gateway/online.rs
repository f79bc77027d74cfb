//! `tiergate check --online` asks every part that a configuration names, says what it saw, and writes nothing.

use std::{net::SocketAddr, process::Output, sync::Arc};

use alloy::primitives::U256;
use serde_json::{Value, json};

use crate::rig::case::{Case, cases};
use crate::rig::stage::{Stage, agents_path, public_path};
use crate::rig::upstream::{Exchange, Then, Upstream};
use crate::rig::{scripts, site::Site, tenants::Tenant, tunnels::Terminator};
use crate::support::process::{free_port, own_ip};
use crate::support::relay::{Behaviour, Relay};
use crate::support::{redis::Redis, service::Service, settings::Settings, signing::ALICE};
use crate::upstream_tls::{Trust, UP};

pub(crate) const CASES: &[Case] = cases![
    every_part_that_answers_is_named_and_nothing_is_written,
    every_part_that_is_wrong_is_named,
    what_a_node_does_not_take_as_most_do_is_named,
    one_agent_is_read_whole_and_its_stake_is_told_in_tokens,
    decimals_that_are_not_the_tokens_and_registries_that_are_swapped_are_wrong,
    a_made_up_identity_that_comes_through_another_gateway_is_found,
];

/// A service that was never started.
fn prepared(settings: Settings, tenants: &[Tenant]) -> Service {
    let tenants: Vec<toml::Value> = tenants.iter().map(Tenant::value).collect();
    let listener = free_port(own_ip()).to_string();
    let settings = settings.set("gateway.allow_empty", tenants.is_empty());
    Service::prepare(settings.set("listen.gateway", vec![listener]).set("tenants", tenants))
}

fn check(service: &Service, further: &[&str]) -> Output {
    service.command("check", &[&["--online"], further].concat())
}

/// All of these texts are in the other one.
#[track_caller]
fn holds(text: &[u8], expected: &[String]) {
    let text = String::from_utf8(text.to_vec()).unwrap();
    for one in expected {
        assert!(text.contains(one), "{one} is missing in {text}");
    }
}

fn every_part_that_answers_is_named_and_nothing_is_written(stage: &Stage) {
    let (upstream, trust, redis) = (Upstream::start(), Trust::new(), Redis::start(&[]));
    let terminator = Terminator::start(upstream.address, &trust.authority.issue(UP), None, &[]);
    let asked = Tenant::new("asked", "asked.test", upstream.address).set("health.path", "/healthz");
    let tenants = [
        Tenant::new("plain", "plain.test", upstream.address),
        asked,
        trust.tenant("tls", "tls.test", &terminator),
    ];
    let (node, settings) = (stage.world().chain().node, stage.settings());
    let url = redis.url(0);
    for (settings, store) in [
        (settings.clone(), ": is not there yet; the service makes it".to_owned()),
        (settings.redis(&url), format!("store {}: answers; ", url.strip_suffix("/0").unwrap())),
    ] {
        let service = prepared(settings, &tenants).without_store();
        let output = check(&service, &[]);
        assert!(output.status.success(), "{output:?}");
        let code = |name: &str| format!("chain.contracts.{name} 0x");
        let registries = ["identity", "stake_vault", "reputation", "validation", "organization"].map(code);
        holds(
            &output.stdout,
            &["answers ownerOf(uint256)".to_owned(), "answers getStake(uint256)".to_owned()],
        );
        let parts = [
            format!("node http://{node}: chain 8004, block "),
            store,
            format!("tenant plain upstream http://{}: connects", upstream.address),
            format!("tenant asked upstream http://{}: is healthy", upstream.address),
            format!("tenant tls upstream https://{}: connects", terminator.address),
        ];
        holds(&output.stdout, &[&registries[..], &parts].concat());
        assert!(!service.data().exists(), "a check makes no store");
    }
    let locked = check(&stage.site().gateway.service, &[]);
    assert!(locked.status.success(), "{locked:?}");
    let registry = stage.world().chain().contracts.identity;
    holds(&locked.stdout, &[format!("data: is for chain 8004 with identity registry {registry}")]);
    assert_eq!(redis.dump(0), Vec::<Vec<u8>>::new());
    assert_eq!(upstream.count(|seen| seen.target == "/healthz"), 2, "once for each run");
    assert_eq!(upstream.seen().len(), 2, "no other request was sent");
}

fn what_a_node_does_not_take_as_most_do_is_named(stage: &Stage) {
    let relay = Relay::new(stage.world().chain().node);
    let urls = vec![format!("http://{}", relay.address)];
    let service = prepared(stage.settings().set("chain.rpc_urls", urls), &[]);
    let (creations, logs) = ("; no eth_call without `to`: ", "; no logs, so that ");
    for (behaviour, named) in [
        (Behaviour::Honest, None),
        (Behaviour::Peculiar, None),
        (Behaviour::Refuse("eth_getLogs", -32_601), Some(logs)),
        (Behaviour::RefuseCreations(json!({ "result": "0x" })), Some(creations)),
        (
            Behaviour::RefuseCreations(json!({ "error": { "code": -32602, "message": "no to" } })),
            Some(creations),
        ),
    ] {
        let shown = format!("{behaviour:?}");
        relay.behave(behaviour);
        let output = check(&service, &[]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        for oddity in [creations, logs] {
            assert_eq!(text.contains(oddity), named == Some(oddity), "{shown}: {text}");
        }
    }
}

fn every_part_that_is_wrong_is_named(stage: &Stage) {
    let (upstream, trust, nobody) = (Upstream::start(), Trust::new(), free_port(own_ip()));
    let terminator = Terminator::start(upstream.address, &trust.authority.issue("other.test"), None, &[]);
    let unwell = |exchange: &mut Exchange| {
        exchange.write(&scripts::answer("503 Service Unavailable", &[], b""))?;
        Ok(Then::Goes)
    };
    upstream.on("/healthz", scripts::script(unwell));
    let healths = Tenant::new("healths", "healths.test", upstream.address).set("health.path", "/healthz");
    let tenants = [
        Tenant::new("gone", "gone.test", nobody),
        healths,
        trust.tenant("tls", "tls.test", &terminator),
        Tenant::of("unknown", &["unknown.test"], &["nowhere.invalid:80"]),
    ];
    let node = stage.world().chain().node;
    let nodes = vec![format!("http://{node}"), format!("http://{nobody}/SECRET")];
    let settings = stage
        .settings()
        .set("chain.rpc_urls", nodes)
        .set("chain.contracts.stake_vault", "0x00000000000000000000000000000000000000aa")
        .redis(&format!("redis://user:SECRET@{nobody}"));
    let service = prepared(settings.clone(), &tenants);
    let output = check(&service, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let wrong = [
        "tiergate: 8 of 14 parts are not as they should be:\n".to_owned(),
        format!("  node http://{nobody}: the connection failed: Connection refused"),
        "  chain.contracts.stake_vault 0x00000000000000000000000000000000000000AA: there is no contract"
            .to_owned(),
        format!("  store redis://{nobody}: it can't be reached: Connection refused"),
        format!("  tenant gone upstream http://{nobody}: ConnectRefused: Connection refused"),
        format!("  tenant healths upstream http://{}: its check is answered with 503", upstream.address),
        format!(
            "  tenant tls upstream https://{}: TLSHandshakeFailure: invalid peer certificate",
            terminator.address
        ),
        "  tenant unknown upstream http://nowhere.invalid:80: its name can't be looked up".to_owned(),
    ];
    holds(&output.stderr, &wrong);
    holds(&output.stdout, &[format!("node http://{node}: chain 8004, block ")]);

    let json = check(&service, &["-o", "json"]);
    let parts: Vec<Value> = serde_json::from_slice(&json.stdout).unwrap();
    let count = |severity: &str| parts.iter().filter(|part| part["severity"] == severity).count();
    assert_eq!((json.status.code(), count("error"), count("info")), (Some(1), 8, 6), "{parts:?}");
    for output in [&output, &json] {
        let said = [&output.stdout[..], &output.stderr].concat();
        assert!(!String::from_utf8(said).unwrap().contains("SECRET"), "{output:?}");
    }

    let elsewhere = prepared(settings.clone().set("chain.chain_id", 1), &[]);
    let on = format!("node http://{node}: the node is on chain 8004, not on chain 1");
    holds(&check(&elsewhere, &[]).stderr, &[on]);
    // A configuration that can't be used names no parts.
    let unusable = check(&prepared(settings.set("surprise", 1), &[]), &[]);
    assert_eq!(unusable.status.code(), Some(2), "{unusable:?}");
}

fn one_agent_is_read_whole_and_its_stake_is_told_in_tokens(stage: &Stage) {
    let (world, settings) =
        (stage.world(), stage.settings().set("tiers.requests_per_minute", vec![1, 2, 3, 4]));
    let service = prepared(settings, &[]);
    let owner = ALICE.address.to_checksum(None);
    for (tier, name, tokens) in [(1, "Bronze", "1000"), (4, "Diamond", "500000"), (0, "Unverified", "0")] {
        let agent = world.agent(tier).text();
        let limit = if tier == 0 { "never passes".to_owned() } else { format!("{tier} a minute") };
        let line =
            format!("agent {agent}: owner {owner}, {tokens} tokens staked, tier {tier} ({name}), {limit}\n");
        let output = check(&service, &["--agent-id", &agent]);
        assert!(output.status.success(), "{output:?}");
        holds(&output.stdout, &[line, "tiers.token_decimals: 18; the stake vault names no token".to_owned()]);
    }
    holds(&check(&service, &[]).stdout, &["agent 1: owner 0x".to_owned()]);
    let absent = check(&service, &["--agent-id", "555555557"]);
    assert_eq!(absent.status.code(), Some(1), "{absent:?}");
    holds(&absent.stderr, &["  agent 555555557: is not minted\n".to_owned()]);
}

fn decimals_that_are_not_the_tokens_and_registries_that_are_swapped_are_wrong(stage: &Stage) {
    let (chain, agent) = (stage.world().chain(), stage.world().agent(4));
    let vault = chain.deploy("TokenVault");
    chain.stake_on(vault, agent.id, U256::from(1_500_000_000_u64));
    let settings = stage.settings().at("chain.contracts.stake_vault", vault);
    let asked = ["--agent-id", &agent.text()];
    let output = check(&prepared(settings.clone(), &[]), &asked);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let wrong = "  tiers.token_decimals: is 18, and the token 0x";
    holds(&output.stderr, &[wrong.to_owned(), " has 6\n".to_owned()]);
    let output = check(&prepared(settings.clone().set("tiers.token_decimals", 6), &[]), &asked);
    assert!(output.status.success(), "{output:?}");
    holds(
        &output.stdout,
        &["tiers.token_decimals: 6, as the token 0x".to_owned(), ", 1500 tokens staked, tier 1 (".to_owned()],
    );
    let other = settings.set("tiers.token_decimals", 6).set("tiers.token", vault.to_string());
    let output = check(&prepared(other, &[]), &asked);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let wrong = format!("  tiers.token: is {vault}, and the stake vault takes 0x");
    holds(&output.stderr, &[wrong]);

    let of = chain.contracts;
    let swapped = stage
        .settings()
        .at("chain.contracts.identity", of.stake_vault)
        .at("chain.contracts.stake_vault", of.identity)
        .at("chain.contracts.reputation", of.validation);
    let output = check(&prepared(swapped, &[]), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let functions = ["ownerOf(uint256)", "getStake(uint256)", "getReputation(uint256)"];
    holds(
        &output.stderr,
        &functions.map(|function| format!("is another one: it does not answer {function}\n")),
    );
}

/// Asks through our own gateway, which strips it, and past it.
fn a_made_up_identity_that_comes_through_another_gateway_is_found(stage: &Stage) {
    let anywhere = |upstream| Tenant::new("anywhere", "*", upstream).public();
    let (site, path) = (Site::of(stage).also(anywhere).start(), public_path());
    // An upstream that shows the heads of its requests.
    let shown = |exchange: &mut Exchange| {
        let head = exchange.seen.head.clone();
        exchange.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", head.len()).as_bytes())?;
        exchange.write(&head)?;
        Ok(Then::Goes)
    };
    site.upstream.on(&path, Arc::new(shown));
    let through = |address: SocketAddr, path: &str| {
        check(&site.gateway.service, &["--through", &format!("http://{address}{path}")])
    };
    let comes_through = "an X-Agent-Id that a client made up comes through to the upstream";
    let past = through(site.upstream.address, &path);
    assert_eq!(past.status.code(), Some(1), "{past:?}");
    holds(&past.stderr, &[comes_through.to_owned()]);
    let output = through(site.gateway.address, &path);
    assert!(output.status.success(), "{output:?}");
    holds(&output.stdout, &["strips a made-up X-Agent-Id, and passes other headers: 200".to_owned()]);
    // What can't be seen is not well.
    for (path, why) in [
        (public_path(), "without the headers of the request: take a public route whose upstream shows them"),
        (agents_path(), "refuses a request without a credential, 401 Unauthorized INVALID_API_KEY"),
    ] {
        let unseen = through(site.gateway.address, &path);
        assert_eq!(unseen.status.code(), Some(1), "{unseen:?}");
        holds(&unseen.stderr, &[why.to_owned()]);
    }
}
