//! A store that is lost, of another chain or of the previous release.

use serde_json::json;

use crate::support::harness::{Case, cases};
use crate::support::time::{SOON, until};
use crate::support::{agents::THRESHOLDS, service::Service, signing::ALICE, world::World};

pub(crate) const CASES: &[Case<World>] =
    cases![a_store_of_another_chain_is_refused_by_a_reload_a_check_and_at_the_start,];

/// About the embedded store's file.
pub(crate) const ON_A_DISK: &[Case<World>] = cases![
    a_start_without_the_stores_file_is_refused_unless_an_empty_one_may_be_made,
    a_data_folder_of_the_previous_release_opens,
];

// threat: Another chain's agent of the same number
fn a_store_of_another_chain_is_refused_by_a_reload_a_check_and_at_the_start(world: &World) {
    let mut service = Service::start(world.settings());
    let agent = world.agent(4);
    let key = agent.generate(&service);
    let file = service.folder.path().join("tiergate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let (contracts, other) = (world.chain().contracts, "chain_id = 5\n");
    let chain = |id: i64| format!("chain {id} with identity registry {}", contracts.identity);
    let sentence = format!(
        "is for {}, and the configuration is for {}; write another ",
        chain(contracts.chain_id),
        chain(5)
    );
    std::fs::write(&file, text.replace(&format!("chain_id = {}\n", contracts.chain_id), other)).unwrap();
    let refused = format!("the configuration is not applied: chain: the store {sentence}");
    service.await_log(&[&refused]);
    service.verify(&key).success(200);
    for (verb, further) in [("check", &["--online"][..]), ("run", &[])] {
        if verb == "run" {
            service.kill();
        }
        let output = service.command(verb, further);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(1), "{verb}: {said}");
        assert!(said.contains(&sentence), "{verb}: {said}");
    }
    std::fs::write(&file, text).unwrap();
    service.start_again("");
    service.await_ready();
    service.verify(&key).success(200);
}

/// A volume that is not mounted is an empty folder, or none.
// threat: An unmounted volume looks empty
fn a_start_without_the_stores_file_is_refused_unless_an_empty_one_may_be_made(world: &World) {
    let (mut service, agent) = (fresh(world), world.agent(1));
    let key = agent.generate(&service);
    service.await_log(&["made an empty store"]);
    service.kill();
    let file = service.folder.path().join("tiergate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("create = true"), "{text}");
    std::fs::write(&file, text.replace("create = true", "create = false")).unwrap();
    let (data, aside) = (service.data(), service.folder.path().join("aside"));
    std::fs::rename(&data, &aside).unwrap();
    let is_refused = |service: &Service| {
        let output = service.run_second();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        for part in
            ["there is no store in", data.to_str().unwrap(), "mount its volume", "store.embedded.create"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        let checked = service.command("check", &["--online"]);
        let said = String::from_utf8(checked.stderr).unwrap();
        assert!(said.contains("no store in") && !data.join("tiergate.redb").exists(), "{said}");
    };
    is_refused(&service);
    assert!(!data.exists(), "nothing is made");
    std::fs::create_dir(&data).unwrap();
    is_refused(&service);
    // The volume is there, and its file was deleted.
    std::fs::remove_dir(&data).unwrap();
    std::fs::rename(&aside, &data).unwrap();
    std::fs::rename(data.join("tiergate.redb"), data.join("kept")).unwrap();
    is_refused(&service);
    std::fs::rename(data.join("kept"), data.join("tiergate.redb")).unwrap();
    service.start_again("");
    service.await_ready();
    service.verify(&key).success(200);
    let starts = || service.log().matches(": serving ").count();
    until("the second start is in the log", SOON, || (starts() == 2).then_some(()));
    assert_eq!(service.log().matches("made an empty store").count(), 1, "that of the first start");
}

/// The first start of a service: its store is empty, and takes signatures in a moment.
fn fresh(world: &World) -> Service {
    let mut service = Service::prepare(world.settings().set("signature.max_ahead", "0s")).without_store();
    begin(&mut service);
    service
}

fn begin(service: &mut Service) {
    service.start_again("");
    // Signatures are taken.
    service.await_readiness("/readyz", 200, |ready| ready["checks"].get("signatures").is_none());
}

/// `tests/fixtures/README.md` says how the file was made.
fn a_data_folder_of_the_previous_release_opens(world: &World) {
    const FILE: &[u8] = include_bytes!("../fixtures/data-0.1/tiergate.redb");
    const KEY: &str = "svc_live_v1_5b91cb422b84fcb7a4a936880d5670008d30f7819ea9668adafad8023c45328c";
    const REVOKED: &str = "svc_live_v1_2045f0f7f4603989bd87b3541fc983da49c8cca022f00b2813157eb8d065cda2";
    let mut service = Service::prepare(world.settings());
    std::fs::write(service.data().join("tiergate.redb"), FILE).unwrap();
    service.start_again("");
    service.await_ready();
    let bound = format!("from now on it is for chain {} with ", world.chain().contracts.chain_id);
    service.await_log(&[&bound]);
    let [agent, revoked] = [900_000_001_u64, 900_000_002].map(|id| {
        let id = id.try_into().unwrap();
        world.chain().mint_with_id(ALICE, id);
        world.chain().stake(id, THRESHOLDS[3]);
        world.known_agent(id, ALICE)
    });
    for (origin, differs) in [("https://app.example", false), ("https://other.example", true)] {
        let body = service.post("/verify", &json!({ "apiKey": KEY, "origin": origin })).success(200);
        assert_eq!((&body["agentId"], &body["endpointMismatch"]), (&json!(agent.text()), &json!(differs)));
    }
    service.verify(REVOKED).error(401, "INVALID_API_KEY");
    for (holder, has_key) in [(&agent, true), (&revoked, false)] {
        assert_eq!(service.status(&holder.text()).success(200)["hasKey"], json!(has_key));
    }
    let signed =
        |nonce: u64| service.verify_signature(&agent.draft().nonce(nonce.try_into().unwrap()).body());
    signed(7).error(400, "REPLAY_DETECTED");
    signed(8).success(200);
}
