//! What upstreams can check by themselves: assertions about agents, their keys, and how these are replaced.

use std::path::{Path, PathBuf};
use std::{fs, net::SocketAddr, process::Command};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::KeyPair;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::identity::{expected, identity};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::upstream::{Seen, Upstream};
use crate::rig::{behind::installed, gateway::Gateway, tenants::Tenant};
use crate::support::process::{Process, free_port, own_ip};
use crate::support::time::{SOON, unix_seconds, until};
use crate::support::{secrets, skip::skip, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    an_upstream_gets_one_assertion_that_verifies_by_every_way,
    an_assertion_is_of_its_tenant_and_none_is_written_where_it_is_off_or_public,
    keys_are_rotated_by_reloads_without_a_gap_and_stay_in_force_when_their_file_is_broken,
    haproxy_verifies_an_assertion_and_refuses_others,
    envoy_verifies_an_assertion_and_refuses_others,
];

const ISSUER: &str = "https://gate.example";
const KEY_SET: &str = "/.well-known/jwks.json";

/// A file of keys, and where it is.
struct Keys {
    folder: TempDir,
    pairs: Vec<KeyPair>,
    pems: Vec<String>,
}

impl Keys {
    fn new() -> Self {
        let pairs: Vec<KeyPair> = (0..2).map(|_| KeyPair::generate().unwrap()).collect();
        let pems: Vec<String> = pairs.iter().map(KeyPair::serialize_pem).collect();
        for line in pems.iter().flat_map(|pem| pem.lines()).filter(|line| !line.starts_with("---")) {
            secrets::keep(line);
        }
        let keys = Self { folder: tempfile::tempdir().unwrap(), pairs, pems };
        keys.write(&[0]);
        keys
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("keys.pem")
    }

    /// Writes these of the keys, in this order.
    fn write(&self, numbers: &[usize]) {
        let text: String = numbers.iter().map(|number| &*self.pems[*number]).collect();
        fs::write(self.path(), text).unwrap();
    }

    /// A site that signs with them, and whose first tenant asks for that.
    fn site<'a>(&self, stage: &'a Stage) -> SiteBuilder<'a> {
        let site = Site::of(stage).set("assertion.issuer", ISSUER);
        let site = site.set("assertion.key_file", self.path().to_str().unwrap());
        site.tenant(|tenant| tenant.set("assertion", true))
    }
}

/// The assertion in a request, which is there once.
fn asserted(seen: &Seen) -> String {
    let named = identity(seen).into_iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-agent-assertion"));
    let [(_, text)] = named.collect::<Vec<_>>().try_into().unwrap();
    text
}

/// Asks with the agent's key, and gives the assertion that the upstream got.
fn assertion(site: &Site) -> String {
    let path = agents_path();
    assert_eq!(site.gateway.ask(&Request::get(ACME, &path).key(site.key())).status, 200);
    asserted(&site.upstream.only(&path))
}

/// The published keys, which are the same at both listeners.
fn key_set(gateway: &Gateway) -> Value {
    let answers = [gateway.service.get(KEY_SET), gateway.ask(&Request::get(ACME, KEY_SET))];
    let [at_api, at_tenant] = answers.map(|answer| {
        assert_eq!(answer.header("cache-control"), Some("max-age=60"));
        answer.success(200)
    });
    assert_eq!(at_api, at_tenant);
    at_api
}

/// The claims of an assertion, if one of these keys has signed it.
fn claims(text: &str, key_set: &Value) -> Option<Value> {
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    let (message, signature) = text.rsplit_once('.').unwrap();
    let (header, claims) = message.split_once('.').unwrap();
    let header: Value = serde_json::from_slice(&decode(header)).unwrap();
    assert_eq!((&header["alg"], &header["typ"]), (&json!("ES256"), &json!("JWT")));
    let key = key_set["keys"].as_array().unwrap().iter().find(|key| key["kid"] == header["kid"])?;
    let [x, y] = ["x", "y"].map(|name| decode(key[name].as_str().unwrap()));
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, [&[4], &*x, &*y].concat());
    key.verify(message.as_bytes(), &decode(signature)).unwrap();
    Some(serde_json::from_slice(&decode(claims)).unwrap())
}

// threat: An upstream is reached past the gateway
fn an_upstream_gets_one_assertion_that_verifies_by_every_way(stage: &Stage) {
    let keys = Keys::new();
    for way in ["relay", "library"] {
        let site = keys.site(stage).way(way).agent(4).start();
        let (from, path) = (unix_seconds(), agents_path());
        let forged =
            |request: Request| request.with("X-Agent-Assertion", "a.b.c").with("X_Agent_Assertion", "a.b.c");
        assert_eq!(site.gateway.ask(&forged(Request::get(ACME, &path).key(site.key()))).status, 200);
        let seen = site.upstream.only(&path);
        let text = asserted(&seen);
        let mut headers: Vec<_> =
            identity(&seen).into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
        headers.retain(|(name, _)| name != "x-agent-assertion");
        headers.sort_unstable();
        let mut others = expected(site.agent(), 4);
        others.sort_unstable();
        assert_eq!(headers, others, "the other headers are as ever");
        let claims = claims(&text, &key_set(&site.gateway)).unwrap();
        let (issued, until) = (claims["iat"].as_u64().unwrap(), claims["exp"].as_u64().unwrap());
        assert!((from..=unix_seconds()).contains(&issued) && until == issued + 60, "{claims}");
        let contracts = &stage.world().chain().contracts;
        for (name, value) in [
            ("iss", json!(ISSUER)),
            ("aud", json!("t")),
            ("sub", json!(site.agent().text())),
            ("owner", json!(others.iter().find(|(name, _)| name == "x-agent-owner").unwrap().1)),
            ("tier", json!(4)),
            ("chain", json!(contracts.chain_id)),
            ("registry", json!(contracts.identity.to_checksum(None))),
        ] {
            assert_eq!(claims[name], value, "{name}");
        }
        // HTTP/2 brings the same one: it was signed a moment ago.
        let path = agents_path();
        let request = Message::request(http::Method::GET, ACME, &path).with("x-api-key", site.key());
        let request = request.with("x-agent-assertion", "a.b.c");
        assert_eq!(h2c::ask(site.gateway.address, &request).unwrap().status, 200);
        let again = asserted(&site.upstream.only(&path));
        let is_late = unix_seconds() >= issued + 30;
        assert!(again == text || is_late);
        // Whatever an answer of ours says, it says nothing of it.
        assert_eq!(site.gateway.ask(&site.by_key()).header("x-agent-assertion"), None);
    }
}

// threat: An assertion says what is no more true
fn an_assertion_is_of_its_tenant_and_none_is_written_where_it_is_off_or_public(stage: &Stage) {
    let keys = Keys::new();
    let other = |id: &str, host: &str, upstream| Tenant::new(id, host, upstream).public();
    let site =
        keys.site(stage).also(|upstream| other("second", "second.test", upstream).set("assertion", true));
    let site = site.also(|upstream| other("plain", "plain.test", upstream)).agent(4).start();
    let ask = |host: &str, path: &str, key: Option<&str>| {
        let request = Request::get(host, path).with("X-Agent-Assertion", "forged");
        let request = key.map_or(request.clone(), |key| request.key(key));
        assert_eq!(site.gateway.ask(&request).status, 200);
        site.upstream.only(path)
    };
    let set = key_set(&site.gateway);
    for (host, tenant) in [(ACME, "t"), ("second.test", "second")] {
        let text = asserted(&ask(host, &agents_path(), Some(site.key())));
        assert_eq!(claims(&text, &set).unwrap()["aud"], json!(tenant));
        assert_eq!(identity(&ask(host, &public_path(), None)), []);
        assert_eq!(identity(&ask(host, &public_path(), Some(site.key()))), []);
    }
    let seen = ask("plain.test", &agents_path(), Some(site.key()));
    assert_eq!(identity(&seen).len(), 5);
    // Nobody of that tenant needs keys, so that path is the upstream's own.
    assert_eq!(site.gateway.ask(&Request::get("plain.test", KEY_SET)).status, 401);
    assert_eq!(stage.site().gateway.service.get(KEY_SET).success(200), json!({ "keys": [] }));
}

// threat: A key of assertions is exchanged, broken or written down
fn keys_are_rotated_by_reloads_without_a_gap_and_stay_in_force_when_their_file_is_broken(stage: &Stage) {
    let keys = Keys::new();
    let site = keys.site(stage).agent(4).unlimited().start();
    let kids = |set: &Value| -> Vec<Value> {
        set["keys"].as_array().unwrap().iter().map(|key| key["kid"].clone()).collect()
    };
    let (mut sets, mut texts) = (vec![key_set(&site.gateway)], vec![assertion(&site)]);
    for (numbers, count) in [(&[0, 1][..], 2), (&[1, 0], 2), (&[1], 1)] {
        keys.write(numbers);
        site.gateway.reread("applied");
        sets.push(key_set(&site.gateway));
        texts.push(assertion(&site));
        assert_eq!(kids(sets.last().unwrap()).len(), count);
    }
    // A verifier that read the keys at the step before, or at this one, accepts what was signed at both.
    for step in 1..4 {
        for (set, text) in [(step, step), (step - 1, step), (step, step - 1)] {
            // The last step comes when the assertions of the first key have expired.
            assert!(claims(&texts[text], &sets[set]).is_some(), "{step}: {set} {text}");
        }
    }
    assert_eq!(claims(&texts[1], &sets[3]), None, "the key that was taken out is known no more");
    // A reload that changes no key signs nothing anew.
    let before = assertion(&site);
    site.gateway.reread("applied");
    let is_late = claims(&before, &sets[3]).unwrap()["iat"].as_u64().unwrap() + 30 <= unix_seconds();
    assert!(assertion(&site) == before || is_late);

    // A file that can't be used changes nothing, and is named.
    fs::write(keys.path(), "no key").unwrap();
    site.gateway.reread("refused");
    let named = format!("{}: holds no private key", keys.path().display());
    site.gateway.service.await_log(&[&named]);
    let checked = site.gateway.service.command("check", &[]);
    assert!(String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap().contains(&named));
    fs::remove_file(keys.path()).unwrap();
    site.gateway.reread("refused");
    assert_eq!(key_set(&site.gateway), sets[3]);
    assert!(claims(&assertion(&site), &sets[3]).is_some());
    keys.write(&[0]);
    site.gateway.reread("applied");
    assert_ne!(key_set(&site.gateway), sets[3]);
}

/// An assertion like this one with other claims, signed with the first of the keys.
fn forged(text: &str, keys: &Keys, change: impl FnOnce(&mut Value)) -> String {
    let parts: Vec<&str> = text.split('.').collect();
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    change(&mut claims);
    let message = format!("{}.{}", parts[0], URL_SAFE_NO_PAD.encode(claims.to_string()));
    let (random, der) = (SystemRandom::new(), keys.pairs[0].serialize_der());
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random).unwrap();
    let signature = URL_SAFE_NO_PAD.encode(key.sign(&random, message.as_bytes()).unwrap());
    format!("{message}.{signature}")
}

// threat: An upstream is reached past the gateway
fn haproxy_verifies_an_assertion_and_refuses_others(stage: &Stage) {
    let keys = Keys::new();
    let (public, address) = (keys.folder.path().join("public.pem"), free_port(own_ip()));
    fs::write(&public, keys.pairs[0].public_key_pem()).unwrap();
    let config = format!(
        "defaults
           mode http
           timeout connect 5s
           timeout client 30s
           timeout server 30s
         frontend upstream
           bind {address}
           http-request set-var(txn.jwt) req.hdr(x-agent-assertion)
           http-request set-var(txn.exp) var(txn.jwt),jwt_payload_query('$.exp','int')
           http-request set-var(txn.now) date
           http-request deny deny_status 401 unless {{ var(txn.jwt),jwt_header_query('$.alg') -m str ES256 }}
           http-request deny deny_status 401 unless {{ var(txn.jwt),jwt_verify(\"ES256\",\"{}\") 1 }}
           http-request deny deny_status 401 unless {{ var(txn.jwt),jwt_payload_query('$.iss') -m str {ISSUER} }}
           http-request deny deny_status 401 unless {{ var(txn.jwt),jwt_payload_query('$.aud') -m str t }}
           http-request deny deny_status 401 if {{ var(txn.exp),sub(txn.now) -m int lt 0 }}
           http-request return status 200
",
        public.display()
    );
    let file = keys.folder.path().join("haproxy.cfg");
    fs::write(&file, config).unwrap();
    if Command::new("haproxy").arg("-v").output().is_err() {
        return skip("haproxy");
    }
    let arguments = ["-db", "-f", file.to_str().unwrap()].map(str::to_owned);
    let process =
        Process::start(Path::new("haproxy"), &arguments, &keys.folder.path().join("haproxy.log"), "");
    until("HAProxy listens", SOON, || {
        assert_eq!(process.exit_code(), None, "{}", process.log());
        std::net::TcpStream::connect(address).ok()
    });
    takes_assertions_alone(stage, &keys, address);
}

/// Envoy takes what has expired for a minute longer, unless it is told otherwise.
// threat: An upstream is reached past the gateway
fn envoy_verifies_an_assertion_and_refuses_others(stage: &Stage) {
    let Some(envoy) = installed("envoy/envoy") else { return skip("the newest Envoy") };
    let (keys, address, upstream) = (Keys::new(), free_port(own_ip()), Upstream::start());
    let published = keys.site(stage).start();
    let at = |address: SocketAddr| json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } });
    let package = "type.googleapis.com/envoy.extensions.filters";
    let jwt = json!({ "name": "jwt", "typed_config": {
        "@type": format!("{package}.http.jwt_authn.v3.JwtAuthentication"),
        "providers": { "tiergate": {
            "issuer": ISSUER, "audiences": ["t"], "forward": true, "clock_skew_seconds": 1,
            "from_headers": [{ "name": "x-agent-assertion" }],
            "local_jwks": { "inline_string": key_set(&published.gateway).to_string() },
        } },
        "rules": [{ "match": { "prefix": "/" }, "requires": { "provider_name": "tiergate" } }],
    } });
    let router =
        json!({ "name": "router", "typed_config": { "@type": format!("{package}.http.router.v3.Router") } });
    let manager = json!({
        "@type": format!("{package}.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "x", "http_filters": [jwt, router],
        "route_config": { "virtual_hosts": [{ "name": "x", "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "x" } }] }] },
    });
    let config = json!({ "static_resources": {
        "listeners": [{ "address": at(address), "filter_chains": [{ "filters": [
            { "name": "http", "typed_config": manager }] }] }],
        "clusters": [{ "name": "x", "type": "STATIC", "load_assignment": { "cluster_name": "x",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": at(upstream.address) } }] }] } }],
    } });
    let file = keys.folder.path().join("envoy.json");
    fs::write(&file, config.to_string()).unwrap();
    let arguments =
        ["-c", file.to_str().unwrap(), "--concurrency", "1", "--disable-hot-restart"].map(str::to_owned);
    let process = Process::start(&envoy, &arguments, &keys.folder.path().join("envoy.log"), "");
    until("Envoy listens", SOON, || {
        assert_eq!(process.exit_code(), None, "{}", process.log());
        std::net::TcpStream::connect(address).ok()
    });
    drop(published);
    takes_assertions_alone(stage, &keys, address);
}

/// Whoever listens here takes an assertion that was signed with these keys, and no other.
fn takes_assertions_alone(stage: &Stage, keys: &Keys, address: SocketAddr) {
    let site = keys.site(stage).agent(4).start();
    let text = assertion(&site);
    let ask = |text: &str| Request::get("x", "/").with("X-Agent-Assertion", text).ask(address).status;
    assert_eq!(ask(&text), 200);
    assert_eq!(ask(&forged(&text, keys, |_| ())), 200, "what is changed below is right without the change");
    let now = unix_seconds();
    let (message, signature) = text.rsplit_once('.').unwrap();
    let payload = message.split_once('.').unwrap().1;
    let other = Keys::new();
    for refused in [
        forged(&text, keys, |claims| claims["exp"] = json!(now - 10)),
        forged(&text, keys, |claims| claims["aud"] = json!("other")),
        forged(&text, keys, |claims| claims["iss"] = json!("https://other.example")),
        forged(&text, &other, |_| ()),
        format!("{message}."),
        format!("{}.{payload}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#)),
        format!("{}.{payload}.{signature}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#)),
        "a.b.c".to_owned(),
    ] {
        // Envoy has 403 for another audience.
        assert!([401, 403].contains(&ask(&refused)), "{refused}");
    }
    assert_eq!(Request::get("x", "/").ask(address).status, 401);
}
