//! Provider keys stand in URLs: no part of one gets out, whatever the node says.

use std::time::Duration;

use crate::chain::fixture::{ALL, PATIENT, Reply, TestNode, agent, bench};
use crate::ports::{Asker, Chain, ChainFault, Parts};

const PATH: &str = "/v3/PathKey0123456789/x1";
const QUERY: &str = "apikey=QueryKey987&net=n2";
const SECRETS: [&str; 8] =
    ["alice", "pass%20word", "pass word", "/v3", "PathKey0123456789", "x1", "apikey", "QueryKey987"];

fn secret_url(node: &TestNode) -> String {
    format!("http://alice:pass%20word@{}{PATH}?{QUERY}", node.authority)
}

/// All that a log line could ever show of a fault.
fn everything_shown(fault: &ChainFault) -> String {
    format!("{fault} {fault:?} {fault:#?}")
}

// threat: Providers' keys in `rpcUrl`
#[tokio::test]
async fn no_part_of_a_url_is_in_a_fault() {
    let echo = format!(
        "Bad route http://alice:pass%20word@node.example{PATH}?{QUERY} ({PATH}?{QUERY}); project 'PathKey0123456789' \
         of alice:pass word, apikey QueryKey987, plan x1"
    );
    let json = serde_json::json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32_000, "message": echo}});
    let replies = [
        (Reply::Error(-32_005, echo.clone(), Some(serde_json::json!(echo))), PATIENT),
        (Reply::Error(3, format!("execution reverted: {echo}"), None), PATIENT),
        (Reply::Http(403, echo.clone()), PATIENT),
        (Reply::Http(401, json.to_string()), PATIENT),
        (Reply::Http(200, echo.clone()), PATIENT),
        (Reply::Result(serde_json::json!(echo)), PATIENT),
        (Reply::CloseMidway, PATIENT),
        (Reply::Endless, PATIENT),
        (Reply::Hang, Duration::from_millis(50)),
    ];
    let mut nodes = vec![(TestNode::refusing(), PATIENT, "refusing".to_owned())];
    for (reply, request_timeout) in replies {
        let shown = format!("{reply:?}");
        nodes.push((TestNode::always(reply).await, request_timeout, shown));
    }
    for (node, request_timeout, name) in nodes {
        let bench = bench(&[secret_url(&node)], ALL, request_timeout);
        let (holders, profile, probe) = tokio::join!(
            bench.reader.holders(agent(1), Asker::Stranger),
            bench.reader.profile(agent(1), Parts::Whole),
            bench.reader.probe(),
        );
        let faults = [holders.unwrap_err(), profile.unwrap_err(), probe.unwrap_err()];
        let metrics = bench.metrics.render().unwrap();
        for fault in faults {
            assert_eq!(&*fault.endpoint, node.url());
            let shown = everything_shown(&fault) + &metrics;
            for secret in SECRETS {
                let leaked = shown.to_lowercase().contains(&secret.to_lowercase());
                assert!(!leaked, "{secret} of {name} in {}", everything_shown(&fault));
            }
        }
    }
}
