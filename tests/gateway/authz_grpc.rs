//! `Check` on the wire: calls that break off, come late, or hold another thing than one message; headers that are set and
//! stripped; facts for the gateway's own rules.

use bytes::Bytes;
use http::{Method, Request, Version};

use crate::rig::authz::{Asked, Decision, Dialect, Original};
use crate::rig::case::{Case, cases};
use crate::rig::checks::{CHECK, Check, Checked, call};
use crate::rig::h2c::{self, Message};
use crate::rig::identity::{expected, normal};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::support::time::Stopwatch;

pub(crate) const CASES: &[Case] = cases![
    a_call_that_is_not_one_message_is_denied,
    a_message_of_64_kib_is_read_and_a_longer_one_denied,
    a_message_that_does_not_come_is_denied_in_time,
    a_stream_that_is_reset_leaves_others_alone,
    no_spelling_of_our_headers_stays_on_a_request_that_passes,
    facts_are_told_to_the_gateways_own_rules,
    a_client_that_speaks_grpc_is_refused_as_by_our_own_gateway,
];

#[track_caller]
fn denied(asked: &Asked, body: &[u8], status: u16) {
    let checked = Checked::of(&h2c::ask(asked.authz, &call(body)).unwrap());
    assert_eq!(checked.decision().error().0, status, "{:?}", &body[..body.len().min(16)]);
}

// threat: A gateway takes a refusal for leave
fn a_call_that_is_not_one_message_is_denied(stage: &Stage) {
    let asked = stage.asked();
    let check = Original::get(ACME, &public_path()).check();
    let whole = check.framed();
    check.ask(asked.authz).decision().passes();
    let with_length = |length: u32| [&[0], &length.to_be_bytes()[..], &check.message].concat();
    let length = u32::try_from(check.message.len()).unwrap();
    for body in [
        b"".to_vec(),
        b"\0".to_vec(),
        b"\0\0\0\0".to_vec(),
        b"\0\0\0\0\0".to_vec(),
        b"\0\0\0\0\x02\x0a\0".to_vec(),
        [&[1], &whole[1..]].concat(),
        [&[255], &whole[1..]].concat(),
        [whole.clone(), whole.clone()].concat(),
        [whole.clone(), b"\0\0\0\0\0".to_vec()].concat(),
        with_length(length - 1),
        with_length(length + 1),
        with_length(u32::MAX),
        whole[..whole.len() - 1].to_vec(),
        [&[0, 0, 0, 0, 4], &[0xff; 4][..]].concat(),
        b"\0\0\0\0\x03\x0a\xff\xff".to_vec(),
    ] {
        denied(asked, &body, 400);
    }
    // A text that is no UTF-8.
    let mut original = Original::get(ACME, "/public/?");
    original.headers.clear();
    let mut broken = original.check();
    let at = broken.message.windows(8).position(|piece| piece == b"/public/").unwrap();
    broken.message[at + 8] = 0xff;
    assert_eq!(broken.ask(asked.authz).decision().error().0, 400);
}

// threat: A call breaks the listener
fn a_message_of_64_kib_is_read_and_a_longer_one_denied(stage: &Stage) {
    const MESSAGE_BYTES_MAX: usize = 64 * 1024;
    let asked = stage.asked();
    // The body of the client's request, which some gateways send too.
    let of_length = |length: usize| {
        let mut check = Original::get(ACME, &public_path()).check();
        // Its number takes one byte, and its length three.
        let filler = vec![b'x'; length - check.message.len() - 4];
        check.message.extend(crate::rig::checks::bytes(15, &filler));
        assert_eq!(check.message.len(), length);
        check
    };
    of_length(MESSAGE_BYTES_MAX).ask(asked.authz).decision().passes();
    let longer = of_length(MESSAGE_BYTES_MAX + 1).ask(asked.authz).decision();
    assert_eq!(longer.error().0, 413);
}

fn head() -> Request<()> {
    let head = Request::post(format!("http://tiergate{CHECK}")).version(Version::HTTP_2);
    head.header("content-type", "application/grpc").body(()).unwrap()
}

// threat: A call breaks the listener
fn a_message_that_does_not_come_is_denied_in_time(stage: &Stage) {
    let asked = stage.asked();
    let begun = Stopwatch::start();
    let whole = Original::get(ACME, &public_path()).check().framed();
    let checked = h2c::run(async {
        let client = h2c::connect(asked.authz).await.unwrap();
        let (answer, mut body) = client.ready().await.unwrap().send_request(head(), false).unwrap();
        body.send_data(Bytes::copy_from_slice(&whole[..20]), false).unwrap();
        let (head, mut incoming) = answer.await.unwrap().into_parts();
        let mut message =
            Message { status: head.status.as_u16(), headers: head.headers, ..Message::default() };
        while let Some(piece) = incoming.data().await {
            message.body.extend_from_slice(&piece.unwrap());
        }
        message.trailers = incoming.trailers().await.unwrap().unwrap();
        Checked::of(&message)
    });
    assert_eq!(checked.decision().error(), (408, "REQUEST_TIMEOUT".to_owned()));
    let secs = begun.elapsed().as_secs();
    assert!((9..60).contains(&secs), "{secs} s");
}

// threat: A call breaks the listener
fn a_stream_that_is_reset_leaves_others_alone(stage: &Stage) {
    let asked = stage.asked();
    let check = Original::get(ACME, &public_path()).check();
    let whole = check.framed();
    h2c::run(async {
        let client = h2c::connect(asked.authz).await.unwrap();
        for cut in [0, 3, 5, 20, whole.len()] {
            let (answer, mut body) =
                client.clone().ready().await.unwrap().send_request(head(), false).unwrap();
            body.send_data(Bytes::copy_from_slice(&whole[..cut]), false).unwrap();
            body.send_reset(h2::Reason::CANCEL);
            drop(answer);
            let answer = h2c::exchange(client.clone(), &check.call()).await.unwrap();
            Checked::of(&answer).decision().passes();
        }
    });
    check.ask(asked.authz).decision().passes();
}

/// The headers of a request as Envoy forwards it: it sets those of the answer and removes others then.
fn forwarded(original: &Original, decision: &Decision) -> Vec<(String, String)> {
    let mut headers = original.headers.clone();
    for (name, value) in &decision.identity {
        headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        headers.push((name.clone(), value.clone()));
    }
    headers.retain(|(name, _)| !decision.stripped.iter().any(|other| name.eq_ignore_ascii_case(other)));
    headers
}

// threat: Forged identity passes beside ours
fn no_spelling_of_our_headers_stays_on_a_request_that_passes(stage: &Stage) {
    let asked = stage.asked();
    let (agent, key) = stage.asked_agent(4);
    let forged = |original: Original| {
        let names = "id owner tier tier-source staked-amount endpoint-mismatch assertion domain anything ";
        let original = names
            .split(' ')
            .flat_map(|rest| {
                let name = format!("x-agent-{rest}");
                [
                    name.replace('-', "_"),
                    name.replace('-', "."),
                    name.replacen('-', "_", 1),
                    name.to_uppercase(),
                    name,
                ]
            })
            .fold(original, |original, name| original.with(&name, "1"));
        original
            .with("x_api_key", "1")
            .with("X-Api_Key", "1")
            .with("x-agentless", "stays")
            .with("x-note", "stays")
    };
    for (original, wanted) in [
        (Original::get(ACME, &public_path()), Vec::new()),
        (Original::get(ACME, &agents_path()).key(&key), expected(&agent, 4)),
        (
            Original::get(ACME, &agents_path()).with("Authorization", &format!("Bearer {key}")),
            expected(&agent, 4),
        ),
    ] {
        let original = forged(original);
        for decision in [
            Check::of(&original).ask(asked.authz).decision(),
            Check::raw(&original).ask(asked.authz).decision(),
            asked.ask(Dialect::Envoy, &original),
        ] {
            let headers = forwarded(&original, decision.passes());
            let mut ours: Vec<_> =
                headers.iter().filter(|(name, _)| normal(name).starts_with("x-agent-")).cloned().collect();
            ours.sort_by_key(|(name, _)| crate::rig::identity::OURS.iter().position(|ours| ours == name));
            assert_eq!(ours, wanted, "{decision:?}");
            let proves = |(name, value): &&(String, String)| {
                normal(name) == "x-api-key" || value.contains("svc_live_v1_")
            };
            assert_eq!(headers.iter().find(proves), None, "{decision:?}");
            assert_eq!(headers.iter().filter(|(_, value)| value == "stays").count(), 2, "{headers:?}");
        }
    }
    // Those that the gateway did not show are named as they are and with underscores.
    let decision = asked.ask(Dialect::Envoy, &Original::get(ACME, &public_path()));
    for name in
        ["x-agent-id", "x_agent_id", "x-agent-assertion", "x_agent_assertion", "x-api-key", "x_api_key"]
    {
        assert!(decision.stripped.iter().any(|stripped| stripped == name), "{name}");
    }
    // A credential of another service stays.
    let original = Original::get(ACME, &public_path()).with("authorization", "Bearer eyJhbGciOi");
    let decision = original.check().ask(asked.authz).decision();
    assert!(!decision.stripped.contains(&"authorization".to_owned()), "{decision:?}");
}

fn a_client_that_speaks_grpc_is_refused_as_by_our_own_gateway(stage: &Stage) {
    let asked = stage.asked();
    let path = agents_path();
    let call = Message::request(Method::POST, ACME, &path).with("content-type", "application/grpc");
    let ours = h2c::ask(asked.site.gateway.address, &call).unwrap();
    let original = Original::new("POST", ACME, &path).with("Content-Type", "application/grpc");
    for check in [Check::of(&original), Check::raw(&original)] {
        let refused = check.ask(asked.authz).decision();
        assert!(!refused.passes && refused.answer.body.is_empty(), "{refused:?}");
        assert_eq!((refused.answer.status, ours.status), (200, 200));
        for name in ["content-type", "grpc-status", "grpc-message", "grpc-status-details-bin"] {
            assert_eq!(refused.answer.header(name), ours.header(name), "{name}");
        }
    }
    assert_eq!(ours.header("grpc-status"), Some("16"));
    // Elsewhere 200 is leave.
    for dialect in [Dialect::Forward, Dialect::Nginx, Dialect::Envoy] {
        assert_eq!(asked.ask(dialect, &original).error().0, 401, "{dialect:?}");
    }
}

fn facts_are_told_to_the_gateways_own_rules(stage: &Stage) {
    let asked = stage.asked();
    let (agent, key) = stage.asked_agent(3);
    let original = Original::get(ACME, &agents_path());
    let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let tenant = fact("tenant", "acme");
    let of_agent =
        vec![fact("agent_id", &agent.text()), fact("limit", "166"), tenant.clone(), fact("tier", "3")];
    assert_eq!(original.clone().key(&key).check().ask(asked.authz).metadata, of_agent);
    assert_eq!(Original::get(ACME, &public_path()).check().ask(asked.authz).metadata, vec![tenant]);
    assert_eq!(
        original.check().ask(asked.authz).metadata,
        Vec::new(),
        "a refusal says what it says in its body"
    );
}
