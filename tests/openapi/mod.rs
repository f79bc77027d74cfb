//! The API is what its description says: Schemathesis makes requests of `/openapi.json`, right ones and wrong ones, and
//! judges each answer.

use std::{fs, path::Path, process::Command};

use alloy::primitives::U256;
use serde_json::json;

use crate::support::signing::{ALICE, Draft};
use crate::support::{
    chain::Chain, seed::seed, service::Service, settings::Settings, skip::skip, whole::times,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// How many requests it makes up for each operation, beside those of the bounds of its schemas: at each change, and before a release.
const EXAMPLES: [usize; 2] = [15, 40];

/// Every operation but that of the description itself, which it leaves out.
const OPERATIONS: &str = "Tested: 12\n";

/// The stake of tier 4, in the token's smallest unit.
const DIAMOND: u128 = 500_000_000_000_000_000_000_000;

#[test]
fn every_answer_to_requests_made_up_from_the_description_is_as_described() {
    let program = Path::new(ROOT).join("tools/servers/schemathesis/bin/schemathesis");
    if !program.is_file() {
        return skip("Schemathesis");
    }
    let chain = Chain::dev();
    let settings = Settings::new(chain.node, &chain.contracts).set("keys.requests_per_hour", 100_000);
    // The profile's request is signed once.
    let settings = settings.set("signature.max_age", "1h").set("signature.nonce_retention", "2h");
    let service = Service::start(settings);
    // One agent's key is made and revoked all the time, the other one's stays.
    let [signer, holder] = [(), ()].map(|()| {
        let agent = chain.mint(ALICE, "ipfs://card");
        chain.stake(agent, U256::from(DIAMOND));
        agent
    });
    let registry = chain.contracts.identity;
    let issued = service.generate(&Draft::new(holder, ALICE, registry).body()).success(201);
    let owner = service.folder.path().join("owner.key");
    fs::write(&owner, ALICE.key).unwrap();
    let sign = json!([
        env!("CARGO_BIN_EXE_tiergate"),
        "sign",
        "--agent-id",
        signer.to_string(),
        "--registry",
        registry.to_string(),
        "--owner-key-file",
        owner.to_str().unwrap(),
    ]);

    let output = Command::new(program)
        .args(["run", &format!("http://{}/openapi.json", service.api), "--no-color"])
        .args(["--seed", &seed().to_string()])
        .args(["--max-examples", &times(EXAMPLES).to_string(), "--request-timeout", "300", "--checks", "all"])
        // A number below 2^256 has no pattern, and a signature that was used is well-formed.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .current_dir(service.folder.path())
        .env("SCHEMATHESIS_HOOKS", Path::new(ROOT).join("tests/openapi/credentials.py"))
        .env("TEST_API_KEY", issued["apiKey"].as_str().unwrap())
        .env("TEST_KEY_AGENT", holder.to_string())
        .env("TEST_SIGN", sign.to_string())
        .env("TEST_PROFILE", Draft::new(signer, ALICE, registry).profile_body().to_string())
        .env("NO_PROXY", "*")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(OPERATIONS), "{text}");
    let samples = service.samples();
    for (endpoint, status) in [
        ("/verify", 200),
        ("/verify/signature", 200),
        ("/profile", 200),
        ("/keys/generate", 201),
        ("/keys/generate", 409),
        ("/keys/rotate", 200),
        ("/keys", 200),
        ("/keys/status", 200),
        ("/keys/status", 400),
        ("/verify", 400),
        ("/docs", 200),
        ("/readyz", 200),
    ] {
        let pieces = [format!("endpoint=\"{endpoint}\""), format!("status=\"{status}\"")];
        let answers = samples.sum("tiergate_requests_total", &[&pieces[0], &pieces[1]]);
        assert!(answers > 0.0, "{status} of {endpoint} was not seen: {text}");
    }
}
