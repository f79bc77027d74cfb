//! Upstreams that die, hang, answer garbage or nothing: the client gets the right error or an aborted answer, and never
//! the bytes of another request.

use serde_json::json;

use crate::rig::case::{Case, cases};
use crate::rig::gateway::Gateway;
use crate::rig::lab::{Lab, impatient, is_upstream_error, is_upstream_timeout};
use crate::rig::refusals::refused;
use crate::rig::scripts::{self, Cue, script};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Then, Upstream};
use crate::support::process::{free_port, own_ip};
use crate::support::time::Stopwatch;
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] = cases![
    an_upstream_that_refuses_connections_is_502,
    an_upstream_that_closes_without_a_word_is_502,
    an_upstream_that_answers_garbage_is_502,
    an_upstream_that_hangs_before_its_answer_is_504,
    an_upstream_that_hangs_in_its_head_is_504,
    an_answer_that_stops_in_the_middle_is_aborted,
    an_answer_that_hangs_in_the_middle_is_aborted_in_time,
    an_answer_before_the_body_is_read_gets_through,
    an_answer_longer_than_announced_does_not_become_the_next_one,
    interim_answers_are_not_the_answer,
    a_total_time_limit_ends_a_request_that_trickles,
    after_trouble_nobody_gets_anothers_bytes,
    an_error_of_the_gateway_spends_as_the_permit_said,
];

fn an_upstream_that_refuses_connections_is_502(stage: &Stage) {
    let nobody = free_port(own_ip());
    let gateway = Gateway::start(stage, &[impatient(Tenant::new("t", ACME, nobody))]);
    for method in ["GET", "POST"] {
        let answer = gateway.ask(&Request::new(method, ACME, &public_path()).body(b"body"));
        is_upstream_error(&answer);
        assert!(!answer.text().contains(&nobody.port().to_string()), "{}", answer.text());
    }
}

fn an_upstream_that_closes_without_a_word_is_502(stage: &Stage) {
    let lab = Lab::new(stage);
    is_upstream_error(&lab.answer_to(script(|_| Ok(Then::Closes))));
    lab.upstream.greet(Some(drop));
    lab.upstream.hang_up();
    is_upstream_error(&lab.gateway.ask(&Request::get(ACME, &public_path())));
    lab.upstream.greet(None);
    lab.next_is_its_own(&mut lab.gateway.connect());
}

fn an_upstream_that_answers_garbage_is_502(stage: &Stage) {
    let lab = Lab::new(stage);
    for garbage in [
        "hello\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Len",
        "{\"status\":200}",
    ] {
        is_upstream_error(&lab.answer_to(scripts::bytes(garbage, Then::Closes)));
    }
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(3_000_000));
    is_upstream_error(&lab.answer_to(scripts::bytes(endless, Then::Closes)));
}

fn an_upstream_that_hangs_before_its_answer_is_504(stage: &Stage) {
    let lab = Lab::new(stage);
    let watch = Stopwatch::start();
    is_upstream_timeout(&lab.answer_to(scripts::hang("")));
    assert!(watch.elapsed().as_millis() >= 500, "it was waited for");
}

fn an_upstream_that_hangs_in_its_head_is_504(stage: &Stage) {
    let lab = Lab::new(stage);
    for begun in ["H", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX"] {
        is_upstream_timeout(&lab.answer_to(scripts::hang(begun)));
    }
}

/// Answers that promise more than they hold.
const CUT: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly so much",
    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
];

fn an_answer_that_stops_in_the_middle_is_aborted(stage: &Stage) {
    let lab = Lab::new(stage);
    for cut in CUT {
        lab.is_aborted(scripts::bytes(*cut, Then::Closes));
    }
    for broken in ["x\r\nhello\r\n0\r\n\r\n", "5\r\nhelloworld\r\n0\r\n\r\n", "-1\r\nhello\r\n0\r\n\r\n"] {
        let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n{broken}");
        lab.is_aborted(scripts::bytes(answer, Then::Goes));
    }
}

fn an_answer_that_hangs_in_the_middle_is_aborted_in_time(stage: &Stage) {
    let lab = Lab::new(stage);
    for cut in &CUT[..4] {
        lab.is_aborted(scripts::hang(*cut));
    }
}

fn an_answer_before_the_body_is_read_gets_through(stage: &Stage) {
    let lab = Lab::new(stage);
    let early = || scripts::answer("403 Forbidden", &[], b"too early");
    let with_rest_read = scripts::early(early());
    let with_rest_thrown_away = script(move |exchange| {
        exchange.write(&early())?;
        Ok(Then::Closes)
    });
    for (script, body) in [(with_rest_read, 100_000), (with_rest_thrown_away, 10)] {
        let (path, next) = (public_path(), public_path());
        lab.upstream.on(&path, script);
        let mut wire = lab.gateway.connect();
        let request = Request::new("POST", ACME, &path).body(&vec![b'x'; body]);
        let _ = wire.write(&request.bytes());
        let answer = wire.answer();
        assert_eq!((answer.status, answer.text().as_str()), (403, "too early"));
        if wire.write(&Request::get(ACME, &next).bytes()).is_ok()
            && let Ok(answer) = wire.try_answer()
        {
            assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(next)));
        }
        lab.next_is_its_own(&mut lab.gateway.connect());
    }
    assert!(lab.upstream.broken().is_empty(), "{:?}", lab.upstream.broken());
}

fn an_answer_longer_than_announced_does_not_become_the_next_one(stage: &Stage) {
    let lab = Lab::new(stage);
    let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    for first in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 204 Empty\r\n\r\n",
        "HTTP/1.1 304 Same\r\n\r\n",
    ] {
        let answer = lab.answer_to(scripts::bytes(format!("{first}{poison}"), Then::Goes));
        assert!(matches!(answer.text().as_str(), "ok" | ""), "{}", answer.text());
    }
    let path = public_path();
    lab.upstream.on(
        &path,
        scripts::bytes(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{poison}"), Then::Goes),
    );
    let mut wire = lab.gateway.connect();
    assert_eq!(Request::new("HEAD", ACME, &path).ask_on(&mut wire).status, 200);
    lab.next_is_its_own(&mut wire);
}

fn interim_answers_are_not_the_answer(stage: &Stage) {
    let lab = Lab::new(stage);
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for interim in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n",
    ] {
        let answer = lab.answer_to(scripts::bytes(format!("{interim}{last}"), Then::Goes));
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"), "{interim:?}");
    }
    // A switch that nobody asked for.
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    is_upstream_error(&lab.answer_to(scripts::bytes(switched, Then::Closes)));
}

fn a_total_time_limit_ends_a_request_that_trickles(stage: &Stage) {
    let upstream = Upstream::start();
    let tenant = impatient(Tenant::new("t", ACME, upstream.address)).set("timeouts.total", "1s");
    let gateway = Gateway::start(stage, &[tenant]);
    let path = public_path();
    let trickle = script(|exchange| {
        exchange.read_body()?;
        exchange.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        // Each byte comes before the limit for reads, paced by a time-out of its own.
        exchange.socket()?.0.set_read_timeout(Some(std::time::Duration::from_millis(100)))?;
        loop {
            exchange.write(b"1\r\nx\r\n")?;
            if exchange.read_raw().is_ok() {
                return Ok(Then::Closes);
            }
        }
    });
    upstream.on(&path, trickle);
    let watch = Stopwatch::start();
    let mut wire = gateway.connect();
    wire.send(&Request::get(ACME, &path).bytes());
    assert!(wire.try_answer().is_err(), "it has begun, so it is cut off");
    assert!((900..15_000).contains(&watch.elapsed().as_millis()), "{:?}", watch.elapsed());
    let path = public_path();
    upstream.on(&path, scripts::hang(""));
    refused(&gateway.ask(&Request::get(ACME, &path)), 504);
}

fn after_trouble_nobody_gets_anothers_bytes(stage: &Stage) {
    let lab = Lab::new(stage);
    let late = Cue::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..20 {
                    let (bad, good) = (public_path(), public_path());
                    let cut = CUT[round % CUT.len()].replace("hello", "alien").replace("only", "alien");
                    lab.upstream.on(&bad, scripts::bytes(cut, Then::Closes));
                    let mut wire = lab.gateway.connect();
                    wire.send(
                        &[Request::get(ACME, &bad).bytes(), Request::get(ACME, &good).bytes()].concat(),
                    );
                    let _ = wire.try_answer();
                    if let Ok(answer) = wire.try_answer() {
                        assert_eq!(answer.json()["target"], json!(good));
                    }
                }
            });
        }
        // A client that leaves in the middle leaves nothing behind either.
        scope.spawn(|| {
            for _ in 0..20 {
                let path = public_path();
                let cue = std::sync::Arc::clone(&late);
                let head = "HTTP/1.1 200 OK\r\n";
                lab.upstream.on(&path, scripts::chunks_on_cue(head, &["alien", "late"], &[cue]));
                let mut wire = lab.gateway.connect();
                wire.send(&Request::get(ACME, &path).bytes());
                assert_eq!(wire.head().unwrap().status, 200);
            }
            late.give();
        });
    });
    for _ in 0..20 {
        let path = public_path();
        assert_eq!(lab.gateway.ask(&Request::get(ACME, &path)).json()["target"], json!(path));
    }
}

fn an_error_of_the_gateway_spends_as_the_permit_said(stage: &Stage) {
    let (_, key) = stage.agent(3);
    let house = stage.house();
    let path = agents_path();
    house.upstream.on(&path, script(|_| Ok(Then::Closes)));
    let answer = house.gateway.ask(&Request::get(ACME, &path).key(&key));
    assert_eq!((answer.status, answer.json()["errorType"].as_str()), (502, Some("UPSTREAM_ERROR")));
    assert_eq!(answer.allowance(), (166, 165), "it was admitted, and its window says so");
    let answer = house.gateway.ask(&Request::get(ACME, &agents_path()).key(&key));
    assert_eq!(answer.allowance(), (166, 164));
}
