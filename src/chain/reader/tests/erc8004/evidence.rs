//! Evidence of validations, which is in logs of long ago.

use std::time::Duration;

use alloy::primitives::B256;
use serde_json::{Value, json};

use super::{REVIEWER, Scene, account};
use crate::chain::fixture::{LIFETIME, Reply, details};
use crate::chain::tests::clock::pass;
use crate::domain::AgentId;
use crate::ports::{Chain, Parts};

/// Two agents that a validator has answered about.
async fn scene() -> (Scene, [AgentId; 2]) {
    let scene = Scene::new().await;
    let agents = [scene.register(), scene.register()];
    for (hash, agent) in (1..).map(B256::repeat_byte).zip(agents) {
        scene.on.request(&*scene.dev.chain, account(1), account(REVIEWER), agent.token_id(), hash);
        scene.on.answer(&*scene.dev.chain, account(REVIEWER), hash, (100, "ipfs://evidence"));
    }
    (scene, agents)
}

impl Scene {
    async fn evidence(&self, agent: AgentId) -> String {
        details(&self.profile(agent).await).validation.latest.clone().unwrap().evidence
    }

    /// Does so with requests for logs that are of this agent, or of any.
    fn play_logs(&self, of: Option<AgentId>, reply: Reply) {
        let topic = of.map(|agent| json!(B256::from(agent.token_id())));
        self.dev.play(move |request: &Value| {
            let is_of = topic.as_ref().is_none_or(|topic| request["params"][0]["topics"][2] == *topic);
            (request["method"] == "eth_getLogs" && is_of).then(|| reply.clone())
        });
    }

    /// True if nobody's evidence is asked for now.
    async fn is_paused(&self) -> bool {
        *self.bench.reader.agents.history_retry_micros.lock().await > 0
    }
}

/// Anybody can have a validator answer one request ten thousand times.
// threat: An agent's data are unreadable or heavy
#[tokio::test]
async fn an_agent_with_more_logs_than_a_node_gives_lacks_its_evidence_alone() {
    let (scene, [flooded, other]) = scene().await;
    let refused = Reply::Error(-32_005, "query returned more than 10000 results".to_owned(), None);
    scene.play_logs(Some(flooded), refused.clone());
    assert_eq!(scene.evidence(flooded).await, "");
    assert_eq!(scene.evidence(other).await, "ipfs://evidence");
    scene.play_logs(None, refused);
    assert_eq!(scene.evidence(other).await, "");
    assert!(scene.is_paused().await, "the node gives no such logs at all");
}

/// Of many agents that are read at once the last ones in line have hardly any time.
#[tokio::test]
async fn logs_that_are_late_for_want_of_time_or_of_a_connection_are_asked_for_again() {
    let (scene, [agent, _]) = scene().await;
    scene.play_logs(None, Reply::Hang);
    let held = scene.bench.reader.agents.history_retry_micros.lock().await;
    let release = async {
        pass(Duration::from_millis(3_700)).await;
        drop(held);
    };
    let (evidence, ()) = tokio::join!(scene.evidence(agent), release);
    assert_eq!((evidence.as_str(), scene.dev.node.calls("eth_getLogs")), ("", 1));
    assert!(!scene.is_paused().await);
    scene.play_logs(None, Reply::CloseMidway);
    assert_eq!(scene.evidence(agent).await, "");
    assert!(!scene.is_paused().await);
    // With time, a node that gives none would only be asked for each agent again and again.
    for reply in [Reply::Hang, Reply::Http(502, String::new()), Reply::Http(429, String::new())] {
        *scene.bench.reader.agents.history_retry_micros.lock().await = 0;
        scene.play_logs(None, reply);
        assert_eq!(scene.evidence(agent).await, "");
        assert!(scene.is_paused().await);
    }
}

#[tokio::test]
async fn a_profile_whose_logs_were_late_for_want_of_time_or_of_a_connection_serves_for_one_poll_interval() {
    let (scene, agents) = scene().await;
    let follower = scene.bench.reader.follower();
    let mut following = follower.begin();
    following.poll().await;
    let read = async |agent| {
        let profile = scene.bench.reader.profile(agent, Parts::Whole).await.unwrap().unwrap();
        details(&profile).validation.latest.clone().unwrap().evidence
    };
    let held = scene.bench.reader.agents.history_retry_micros.lock().await;
    assert_eq!(read(agents[0]).await, "");
    drop(held);
    scene.play_logs(None, Reply::CloseMidway);
    assert_eq!(read(agents[1]).await, "");
    scene.dev.play(|_| None);
    scene.bench.clock.advance(LIFETIME);
    following.poll().await;
    for agent in agents {
        assert_eq!(read(agent).await, "ipfs://evidence");
        let asked = scene.dev.node.calls("eth_call");
        scene.bench.clock.advance(LIFETIME);
        assert_eq!(
            (read(agent).await.as_str(), scene.dev.node.calls("eth_call")),
            ("ipfs://evidence", asked)
        );
    }
}
