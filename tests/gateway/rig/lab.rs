//! A gateway with time limits that a test can wait for, in front of an upstream that is about to misbehave.

use serde_json::{Value, json};

use crate::rig::gateway::Gateway;
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::upstream::{Script, Upstream};
use crate::support::client::Answer;
use crate::support::wire::{Request, Wire};

/// A gateway with short time limits in front of an upstream of the case's own.
pub(crate) struct Lab {
    pub(crate) gateway: Gateway,
    pub(crate) upstream: Upstream,
}

impl Lab {
    pub(crate) fn new(stage: &Stage) -> Self {
        let upstream = Upstream::start();
        let gateway = Gateway::start(stage, &[impatient(Tenant::new("t", ACME, upstream.address))]);
        Self { gateway, upstream }
    }

    /// What a script's answer becomes, and that a neighbour and the next request get their own.
    #[track_caller]
    pub(crate) fn answer_to(&self, script: Script) -> Answer {
        let path = public_path();
        self.upstream.on(&path, script);
        let mut wire = self.gateway.connect();
        wire.send(&Request::get(ACME, &path).bytes());
        let answer = wire.answer();
        self.next_is_its_own(&mut wire);
        answer
    }

    /// The answer is cut off, and the connection with it; or nothing of it is passed on.
    #[track_caller]
    pub(crate) fn is_aborted(&self, script: Script) {
        let path = public_path();
        self.upstream.on(&path, script);
        let mut wire = self.gateway.connect();
        wire.send(&Request::get(ACME, &path).bytes());
        let head = wire.head().unwrap();
        if head.status != 200 {
            // The end was seen before the beginning was passed on.
            is_upstream_error(&wire.body(head).unwrap());
            return self.next_is_its_own(&mut wire);
        }
        if let Ok(answer) = wire.body(head) {
            panic!("whole: {}", answer.text());
        }
        let rest = String::from_utf8_lossy(&wire.rest()).into_owned();
        assert!(
            !rest.contains("HTTP/1.1") && !rest.contains("errorType"),
            "an error inside an answer: {rest}"
        );
        self.next_is_its_own(&mut self.gateway.connect());
    }

    #[track_caller]
    pub(crate) fn next_is_its_own(&self, wire: &mut Wire) {
        for wire in [wire, &mut self.gateway.connect()] {
            let next = public_path();
            let sent = wire.write(&Request::get(ACME, &next).bytes());
            match sent.and_then(|()| wire.try_answer()) {
                Ok(answer) => assert_eq!((answer.status, &answer.json()["target"]), (200, &json!(next))),
                // The gateway may close a connection after an error, but then says nothing more on it.
                Err(_) => assert_eq!(wire.rest(), b""),
            }
        }
        let next = public_path();
        assert_eq!(self.gateway.ask(&Request::get(ACME, &next)).json()["target"], json!(next));
    }
}

/// Time limits that a test can wait for, and no ejection.
pub(crate) fn impatient(tenant: Tenant) -> Tenant {
    tenant
        .public()
        .set("timeouts.connect", "500ms")
        .set("timeouts.read", "500ms")
        .set("timeouts.write", "500ms")
        .set("health.eject_after", 0)
}

#[track_caller]
pub(crate) fn is_upstream_error(answer: &Answer) {
    assert_eq!(answer.error(502, "UPSTREAM_ERROR"), Value::Null, "nothing is told of the upstream");
}

#[track_caller]
pub(crate) fn is_upstream_timeout(answer: &Answer) {
    assert_eq!(answer.error(504, "UPSTREAM_TIMEOUT"), Value::Null, "nothing is told of the upstream");
}
