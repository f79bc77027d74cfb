//! Request smuggling: bytes that two readers of HTTP/1 may read differently are refused, and what passes is seen by the
//! upstream exactly as it was meant, also on the next request of the connection.

use crate::heads::ambiguous;
use crate::rig::case::{Case, cases};
use crate::rig::refusals::{is_malformed, refused};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    ambiguous_heads_are_400_and_closed_and_nothing_behind_them_is_forwarded,
    pipelined_requests_are_answered_in_order_and_each_is_judged,
    an_http_1_0_client_gets_one_answer,
    heads_have_an_end,
];

/// The longest head, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Every second one on a connection that was used before.
// threat: Request smuggling
fn ambiguous_heads_are_400_and_closed_and_nothing_behind_them_is_forwarded(stage: &Stage) {
    let site = stage.site();
    let (mut wrong, mut words) = (Vec::new(), Vec::new());
    let nul = "GET {}\0 HTTP/1.1\r\nHost: acme.test\r\n\r\n".to_owned();
    for (number, head) in ambiguous("{}").into_iter().chain([nul]).enumerate() {
        let (refused, smuggled) = (public_path(), public_path());
        let mut wire = site.gateway.connect();
        if number % 2 == 1 {
            assert_eq!(Request::get(ACME, &public_path()).ask_on(&mut wire).status, 200);
        }
        let behind = format!("GET {smuggled} HTTP/1.1\r\nHost: {ACME}\r\n\r\n");
        wire.send(format!("{}{behind}", head.replace("{}", &refused)).as_bytes());
        let shown = head.escape_debug();
        match wire.try_answer() {
            Ok(answer) if answer.status == 400 => is_malformed(&answer),
            other => wrong.push(format!("{shown}: {other:?}")),
        }
        let rest = wire.rest();
        if !rest.is_empty() {
            wrong.push(format!("{shown}: another answer: {}", String::from_utf8_lossy(&rest)));
        }
        words.extend([refused, smuggled]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(words.len() > 100, "{}", words.len());
    site.are_unseen(&words);
}

// threat: Request smuggling
fn pipelined_requests_are_answered_in_order_and_each_is_judged(stage: &Stage) {
    let (_, key) = stage.agent(4);
    let site = stage.site();
    let (paths, agents) = ([public_path(), public_path(), public_path()], [agents_path(), agents_path()]);
    let mut wire = site.gateway.connect();
    let requests = [
        Request::get(ACME, &paths[0]),
        Request::get(ACME, &agents[0]),
        Request::new("POST", ACME, &paths[1]).body(b"body"),
        Request::get(ACME, &agents[1]).key(&key),
        Request::get("unknown.test", &paths[2]),
        Request::get(ACME, &paths[2]),
    ];
    wire.send(&requests.iter().flat_map(Request::bytes).collect::<Vec<u8>>());
    let statuses: Vec<u16> = requests.iter().map(|_| wire.answer().status).collect();
    assert_eq!(statuses, [200, 401, 200, 200, 404, 200]);
    site.is_unseen(&agents[0]);
    assert_eq!(site.upstream.only(&paths[1]).body, b"body");
    assert_eq!(site.upstream.only(&paths[2]).all("host"), [ACME]);
    assert_eq!(site.upstream.only(&agents[1]).all("x-agent-tier"), ["4"]);
    assert!(site.upstream.only(&paths[2]).all("x-agent-tier").is_empty(), "the last one has shown no key");
}

fn an_http_1_0_client_gets_one_answer(stage: &Stage) {
    let site = stage.site();
    let (path, behind) = (public_path(), public_path());
    let mut wire = site.gateway.connect();
    wire.send(
        format!("GET {path} HTTP/1.0\r\nHost: {ACME}\r\n\r\nGET {behind} HTTP/1.0\r\nHost: {ACME}\r\n\r\n")
            .as_bytes(),
    );
    let text = String::from_utf8(wire.rest()).unwrap();
    assert!(text.starts_with("HTTP/1.") && text.contains(" 200 "), "{text}");
    assert!(!text.to_lowercase().contains("transfer-encoding"), "HTTP/1.0 knows no chunks: {text}");
    assert_eq!(text.matches("HTTP/1.").count(), 1, "{text}");
    site.upstream.only(&path);
    site.is_unseen(&behind);
}

// threat: Huge or costly heads and bodies
fn heads_have_an_end(stage: &Stage) {
    let site = stage.site();
    // A path too long to be judged is denied before that.
    let (path, query) = (public_path(), format!("{}?", public_path()));
    let padded = |header: bool, bytes: usize| {
        let (target, name) = if header { (&path, "X-Long") } else { (&query, "X-Short") };
        let rest = bytes - Request::get(ACME, target).with(name, "").bytes().len();
        let padding = "x".repeat(rest);
        let target = if header { target.clone() } else { format!("{target}{padding}") };
        Request::get(ACME, &target).with(name, if header { &padding } else { "" })
    };
    for header in [true, false] {
        assert_eq!(padded(header, HEAD_BYTES_MAX).bytes().len(), HEAD_BYTES_MAX);
        assert_eq!(site.gateway.ask(&padded(header, HEAD_BYTES_MAX)).status, 200);
        let mut wire = site.gateway.connect();
        // The gateway need not read all of it.
        let _ = wire.write(&padded(header, HEAD_BYTES_MAX + 1).bytes());
        refused(&wire.answer(), 431);
        assert_eq!(wire.rest(), b"");
    }
    site.are_unseen(&[]);
    assert_eq!([site.upstream.seen_with(&path).len(), site.upstream.seen_with(&query).len()], [1, 1]);
}
