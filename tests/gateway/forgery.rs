//! Random headers and trailers: nothing that a client writes is read by an upstream as an identity.

use std::cell::Cell;
use std::fmt::Write as _;

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::rig::case::{Case, cases};
use crate::rig::gateway::Gateway;
use crate::rig::h2c::{self, H2Upstream, Message};
use crate::rig::identity::{expected, identity, identity_of, normal, told};
use crate::rig::refusals::is_unseen;
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    no_random_header_is_read_by_the_upstream_as_an_identity,
    no_random_trailer_is_read_by_the_upstream_as_an_identity,
    no_random_header_of_http_2_is_read_by_the_upstream_as_an_identity,
];

/// How many random requests each property sends.
const REQUESTS: u32 = 96;

/// A name that some server may read as `x-agent-*`, with random case, separators and rest.
fn name() -> impl Strategy<Value = String> {
    let separator = prop_oneof![
        Just('-'),
        Just('_'),
        Just('.'),
        Just('~'),
        Just('!'),
        Just('#'),
        Just('$'),
        Just('%'),
        Just('&'),
        Just('\''),
        Just('*'),
        Just('+'),
        Just('^'),
        Just('`'),
        Just('|'),
    ];
    let word = |word: &'static str| {
        proptest::collection::vec(any::<bool>(), word.len()).prop_map(move |upper| {
            let chars = word.chars().zip(upper);
            chars.map(|(char, up)| if up { char.to_ascii_uppercase() } else { char }).collect::<String>()
        })
    };
    let rest =
        prop_oneof!["id", "owner", "tier", "staked\\.amount", "endpoint_mismatch", "[a-zA-Z0-9_.~-]{0,12}"];
    (word("x"), separator.clone(), word("agent"), separator, rest)
        .prop_map(|(x, first, agent, second, rest)| format!("{x}{first}{agent}{second}{rest}"))
}

/// Names and values of a few headers, some of them forged and some not.
fn headers() -> impl Strategy<Value = Vec<(String, String)>> {
    let innocent = "[A-Za-z][A-Za-z0-9_.-]{0,10}".prop_filter("names that mean something", |name| {
        let name = normal(name);
        ![
            "x-agent",
            "x-api",
            "host",
            "te",
            "connection",
            "content-",
            "transfer-",
            "expect",
            "upgrade",
            "auth",
        ]
        .iter()
        .any(|meaning| name.starts_with(meaning))
            && !["trailer", "keep-alive", "via", "range", "origin", "date"].contains(&name.as_str())
    });
    let pair = (prop_oneof![3 => name(), 1 => innocent], "forged[a-z0-9]{0,8}");
    proptest::collection::vec(pair, 1..6)
}

/// Runs a property with random requests; the failing one is printed smaller.
fn for_all(property: impl Fn(&[(String, String)]) -> Result<(), String>) {
    let config = Config { cases: REQUESTS, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let sent = Cell::new(0);
    let run = runner.run(&headers(), |headers| {
        sent.set(sent.get() + 1);
        property(&headers).map_err(TestCaseError::fail)
    });
    run.unwrap_or_else(|error| panic!("{error}"));
    assert!(sent.get() >= REQUESTS, "{} requests were sent", sent.get());
}

fn compare(what: &str, seen: Vec<(String, String)>, wanted: Vec<(String, String)>) -> Result<(), String> {
    if seen == wanted { Ok(()) } else { Err(format!("{what}: the upstream reads {seen:?}")) }
}

fn chunked_with_trailers(path: &str, key: &str, trailers: &[(String, String)]) -> String {
    let names: Vec<&str> = trailers.iter().map(|(name, _)| name.as_str()).collect();
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: {ACME}\r\nTransfer-Encoding: chunked\r\nTrailer: {}\r\n{key}\r\n5\r\nhello\r\n0\r\n",
        names.join(", "),
    );
    for (name, value) in trailers {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    request + "\r\n"
}

fn no_random_header_is_read_by_the_upstream_as_an_identity(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let house = stage.house();
    for_all(|headers| {
        let signed = headers.iter().any(|(name, _)| {
            let name = name.to_lowercase();
            ["x-agent-id", "x-agent-signature", "x-agent-nonce", "x-agent-timestamp"].contains(&name.as_str())
        });
        let path = agents_path();
        let answer = house.gateway.ask(&Request::get(ACME, &path).key(&key).with_all(headers));
        if answer.status == 200 {
            compare("agents", told(&house.upstream.only(&path)), expected(&agent, 4))?;
        } else if !signed {
            return Err(format!("{}: {}", answer.status, answer.text()));
        }
        let path = public_path();
        let answer = house.gateway.ask(&Request::get(ACME, &path).with_all(headers));
        if answer.status != 200 {
            return Err(format!("{}: {}", answer.status, answer.text()));
        }
        compare("public", identity(&house.upstream.only(&path)), Vec::new())
    });
}

fn no_random_trailer_is_read_by_the_upstream_as_an_identity(stage: &Stage) {
    let (agent, key) = stage.agent(4);
    let house = stage.house();
    for_all(|trailers| {
        for (path, key, wanted) in [
            (agents_path(), format!("X-API-Key: {key}\r\n"), expected(&agent, 4)),
            (public_path(), String::new(), Vec::new()),
        ] {
            let answer = house.gateway.ask_raw(chunked_with_trailers(&path, &key, trailers).as_bytes());
            if answer.status == 400 {
                is_unseen(&house.upstream, &path);
                continue;
            }
            let seen = house.upstream.whole(&path);
            compare("trailers", told(&seen), wanted)?;
            if seen.body != b"hello" {
                return Err(format!("the body came as {:?}", seen.body));
            }
        }
        Ok(())
    });
    assert!(house.upstream.broken().is_empty(), "{:?}", house.upstream.broken());
}

fn no_random_header_of_http_2_is_read_by_the_upstream_as_an_identity(stage: &Stage) {
    let upstream = H2Upstream::start(H2Upstream::ok);
    let tenant = Tenant::of("t", &["t.test"], &[&format!("h2c://{}", upstream.address)]).public();
    let gateway = Gateway::start(stage, &[tenant]);
    let agent = stage.world().agent(4);
    let key = agent.generate(&gateway.service);
    for_all(|forged| {
        for (path, wanted) in [(agents_path(), expected(&agent, 4)), (public_path(), Vec::new())] {
            let mut request = Message::request(http::Method::POST, "t.test", &path).body(b"hello");
            if !wanted.is_empty() {
                request = request.with("x-api-key", &key);
            }
            let mut with_signature = false;
            for (name, value) in forged {
                request = request.with(&name.to_lowercase(), value).trailer(&name.to_lowercase(), value);
                with_signature |= ["x-agent-id", "x-agent-signature", "x-agent-nonce", "x-agent-timestamp"]
                    .contains(&name.to_lowercase().as_str());
            }
            let answer = h2c::ask(gateway.address, &request).map_err(|error| error.to_string())?;
            if answer.status != 200 && with_signature && !wanted.is_empty() {
                continue;
            }
            if answer.status != 200 {
                return Err(format!("{}: {}", answer.status, answer.text()));
            }
            let seen = upstream.only(&path);
            compare("HTTP/2", identity_of(&seen), wanted)?;
        }
        Ok(())
    });
}
