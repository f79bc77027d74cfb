//! `DELETE /keys`: no key any more, for good.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use crate::support::harness::{Case, cases};
use crate::support::stop::Stop;
use crate::support::time::{SOON, until};
use crate::support::world::World;

pub(crate) const CASES: &[Case<World>] = cases![
    the_key_is_invalid_at_once_and_for_good,
    revoking_when_there_is_no_key_is_200,
    revoking_again_is_200_with_a_fresh_nonce_and_a_replay_without,
    revoking_does_not_touch_other_agents,
    verifications_in_flight_never_pass_after_the_revoke_was_answered,
];

fn the_key_is_invalid_at_once_and_for_good(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    service.verify(&key).success(200);
    let answer = service.revoke(&agent.signed());
    service.verify(&key).is_error(401, "INVALID_API_KEY", json!({ "agentId": null }));
    assert_eq!(answer.success(200), json!({ "success": true, "agentId": agent.text() }));
    assert_eq!(answer.allowance(), (10, 8));
    assert_eq!(service.status(&agent.text()).success(200)["hasKey"], json!(false));
    agent.generate(service);
    service.verify(&key).error(401, "INVALID_API_KEY");
}

fn revoking_when_there_is_no_key_is_200(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    let answer = service.revoke(&agent.signed());
    assert_eq!(answer.success(200), json!({ "success": true, "agentId": agent.text() }));
    assert_eq!(answer.allowance(), (10, 9));
}

fn revoking_again_is_200_with_a_fresh_nonce_and_a_replay_without(world: &World) {
    let (service, agent) = (world.service(), world.agent(0));
    agent.generate(service);
    let body = agent.signed();
    service.revoke(&body).success(200);
    service.revoke(&agent.signed()).success(200);
    service.revoke(&body).error(400, "REPLAY_DETECTED");
}

fn revoking_does_not_touch_other_agents(world: &World) {
    let (service, one, other) = (world.service(), world.agent(3), world.agent(3));
    one.generate(service);
    let kept = other.generate(service);
    service.revoke(&one.signed()).success(200);
    service.verify(&kept).success(200);
}

fn verifications_in_flight_never_pass_after_the_revoke_was_answered(world: &World) {
    let (service, agent) = (world.service(), world.agent(4));
    let key = agent.generate(service);
    let (revoked, passed, stop) = (AtomicBool::new(false), AtomicUsize::new(0), Stop::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut connection = service.connect();
                // The last request is one that begins after the revoke was answered.
                loop {
                    let was_stopped = stop.is_set();
                    let was_revoked = revoked.load(Ordering::SeqCst);
                    let answer = connection.post("/verify", &json!({ "apiKey": key })).unwrap();
                    let expected: &[u16] = if was_revoked { &[401] } else { &[200, 401, 429] };
                    assert!(expected.contains(&answer.status), "{}", answer.text());
                    passed.fetch_add(usize::from(answer.status == 200), Ordering::SeqCst);
                    if was_stopped {
                        return;
                    }
                }
            });
        }
        let _stops = stop.at_end();
        let some_passed = || (passed.load(Ordering::SeqCst) > 4).then_some(());
        until("verifications pass on more than one connection", SOON, some_passed);
        service.revoke(&agent.signed()).success(200);
        revoked.store(true, Ordering::SeqCst);
    });
}
