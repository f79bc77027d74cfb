//! The client libraries do what their tests say, against the real service with a chain and a gateway.

use std::{fs, net::SocketAddr, path::Path, process::Command};

use alloy::primitives::U256;
use serde_json::{Value, json};

use crate::support::process::{free_port, own_ip};
use crate::support::signing::{ALICE, BOB};
use crate::support::{chain::Chain, secrets, service::Service, settings::Settings, skip::skip};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The stakes of tiers 1 and 4, in the token's smallest unit.
const BRONZE: u128 = 1_000_000_000_000_000_000_000;
const DIAMOND: u128 = 500_000_000_000_000_000_000_000;

/// Bound for the tests of one client: ten times what they take alone, on a machine that is busy with other things. scripts/time-limit
/// ends the whole binary a little later, and shows nothing of what they wrote.
const SUITE_SECONDS: f64 = 1_200.0;

/// Agents of each kind: eight for each of five files of tests.
const AGENTS: usize = 40;

/// A service with three tenants, and one that can't read its chain.
struct Stage {
    /// The variable of the tests, as JSON.
    facts: Value,
    _service: Service,
    _chainless: Service,
    _named: Service,
    _chain: Chain,
    _keys: tempfile::NamedTempFile,
}

impl Stage {
    fn start() -> Self {
        let chain = Chain::dev();
        let [gateway, narrow, signed] = [(), (), ()].map(|()| free_port(own_ip()));
        let upstreams = [(), (), ()].map(|()| free_port(own_ip()));
        let [asserted, nobody] = [(), ()].map(|()| free_port(own_ip()));
        let signing = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let keys = tempfile::NamedTempFile::new().unwrap();
        fs::write(keys.path(), &signing).unwrap();
        let issuer = "https://gate.example";
        let settings = Settings::new(chain.node, &chain.contracts);
        let chainless =
            Service::start_unready(settings.clone().set("chain.rpc_urls", vec![format!("http://{nobody}")]));
        let owners = free_port(own_ip());
        let own_types = settings.clone().set("signature.key_operations", "own_types");
        let own_types = own_types.set("keys.public_url", format!("http://{owners}"));
        let named = Service::start(own_types.set("listen.owners", vec![owners.to_string()]));
        let listeners: Vec<String> = [gateway, narrow, signed].map(|address| address.to_string()).into();
        let settings = settings.set("listen.gateway", listeners).set("gateway.via", "edge");
        let settings = settings.set("assertion.issuer", issuer);
        let mut service = Service::prepare(settings.set("assertion.key_file", keys.path().to_str().unwrap()));
        let tenants = service.folder.path().join("tenants.d");
        fs::create_dir(&tenants).unwrap();
        let write = |id: &str, text: String| fs::write(tenants.join(format!("{id}.toml")), text).unwrap();
        write("wide", wide(gateway, upstreams, asserted, nobody));
        write("narrow", narrow_tenant(narrow, upstreams[2]));
        write("signed", signed_tenant(signed, upstreams));
        service.start_again("");
        service.await_ready();

        let agents = |stake: u128| -> Vec<String> {
            let mint = |_| {
                let agent = chain.mint(ALICE, "ipfs://card");
                if stake > 0 {
                    chain.stake(agent, U256::from(stake));
                }
                agent.to_string()
            };
            (0..AGENTS).map(mint).collect()
        };
        let facts = json!({
            "root": ROOT,
            "api": format!("http://{}", service.api),
            "named": format!("http://{}", named.api),
            "owners": format!("http://{owners}"),
            "chainless": format!("http://{}", chainless.api),
            "gateway": format!("http://{gateway}"),
            "narrow": format!("http://{narrow}"),
            "signed": format!("http://{signed}"),
            "upstreams": upstreams,
            "asserted": asserted,
            "issuer": issuer,
            "jwks": format!("http://{}/.well-known/jwks.json", service.api),
            "signing": &signing,
            "registry": chain.contracts.identity.to_checksum(None),
            "owner": ALICE.key,
            "stranger": BOB.key,
            "unstaked": agents(0),
            "bronze": agents(BRONZE),
            "diamond": agents(DIAMOND),
        });
        [ALICE.key, BOB.key].into_iter().for_each(secrets::keep);
        signing.lines().filter(|line| !line.starts_with("---")).for_each(secrets::keep);
        Self { facts, _service: service, _chainless: chainless, _named: named, _chain: chain, _keys: keys }
    }

    /// Runs a client's tests.
    fn run(&self, program: &Path, arguments: &[&str]) {
        let output = bounded(SUITE_SECONDS, program, arguments)
            .current_dir(ROOT)
            .env("TEST_SERVICE", self.facts.to_string())
            .env("NO_PROXY", "*")
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (status, out, err) = (output.status, text(&output.stdout), text(&output.stderr));
        assert!(status.success(), "{status} (124: not within {SUITE_SECONDS} s)\n{out}{err}");
    }
}

/// A program that is ended with its children after so many seconds, and fails then.
fn bounded(seconds: f64, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=120", &seconds.to_string()]).arg(program).args(arguments);
    command
}

#[test]
fn a_suite_that_hangs_is_ended_with_its_children_and_fails() {
    // `output` returns when the children have closed their ends of its pipes, too.
    let hangs = bounded(0.1, Path::new("sh"), &["-c", "sleep infinity & wait"]).output().unwrap();
    assert_eq!(hangs.status.code(), Some(124));
}

/// Routes to an upstream each, to nobody, and for nobody.
fn wide(
    listener: SocketAddr,
    [one, two, plain]: [SocketAddr; 3],
    asserted: SocketAddr,
    nobody: SocketAddr,
) -> String {
    let route =
        |path: &str, upstream| format!("[[routes]]\npath = \"{path}\"\nupstreams = [\"{upstream}\"]\n");
    [
        format!(
            "id = \"wide\"\nhosts = [\"{}\"]\nupstreams = [\"{plain}\"]\nassertion = true\n",
            listener.ip()
        ),
        "[timeouts]\nread = \"15s\"\n[[routes]]\npath = \"/denied\"\naccess = \"deny\"\n".to_owned(),
        route("/one", one),
        route("/two", two),
        route("/asserted", asserted),
        route("/gone", nobody),
    ]
    .concat()
}

/// One request of an agent at once, and one at the upstream. Other origins are denied.
fn narrow_tenant(listener: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "id = \"narrow\"\nhosts = [\"{}\"]\nupstreams = [\"{upstream}\"]\non_endpoint_mismatch = \"deny\"\n\
         [limits]\nmax_in_flight_per_agent = 1\n[upstream_limits]\nmax_in_flight = 1\nmax_pending = 0\n",
        listener.ip()
    )
}

/// Takes requests that are signed themselves, and nothing else.
fn signed_tenant(listener: SocketAddr, [one, two, plain]: [SocketAddr; 3]) -> String {
    format!(
        "id = \"signed\"\nhosts = [\"{}\"]\nupstreams = [\"{plain}\"]\ncredentials = [\"erc8128\"]\n\
         [[routes]]\npath = \"/one\"\nupstreams = [\"{one}\"]\n[[routes]]\npath = \"/two\"\nupstreams = [\"{two}\"]\n",
        listener.ip()
    )
}

/// True if it is there. Skips the test if it is not.
fn is_installed(path: &str) -> bool {
    let is_there = Path::new(ROOT).join(path).exists();
    if !is_there {
        skip(path);
    }
    is_there
}

/// True if Node has what these tests use; Debian 12 has an older one. Skips the test if it has not.
fn is_node_new_enough() -> bool {
    let check = Command::new("scripts/node-for-clients").current_dir(ROOT).status();
    let is_new = check.is_ok_and(|status| status.success());
    if !is_new {
        skip("Node 20.14 or newer");
    }
    is_new
}

// threat: An upstream is reached past the gateway
// threat: A signature for one service, or for a verification, is spent on a key at another
// threat: A client shows a key that is given in the wrong place
// threat: A credential goes over plain HTTP
#[test]
fn the_typescript_client_does_what_its_tests_say() {
    if is_installed("tools/node_modules/viem") && is_node_new_enough() {
        Stage::start().run(Path::new("node"), &["clients/typescript/test/run.mjs"]);
    }
}

// threat: An upstream is reached past the gateway
// threat: A signature for one service, or for a verification, is spent on a key at another
// threat: A client shows a key that is given in the wrong place
// threat: A credential goes over plain HTTP
#[test]
fn the_python_client_does_what_its_tests_say() {
    let python = "tools/servers/python-clients/bin/python";
    if is_installed(python) {
        Stage::start().run(&Path::new(ROOT).join(python), &["-B", "-m", "pytest", "clients/python"]);
    }
}

#[test]
fn the_python_client_and_its_tests_are_typed() {
    check_python(&[
        "mypy",
        "--config-file",
        "clients/python/pyproject.toml",
        "--cache-dir",
        "target/mypy",
        "clients/python/tiergate",
        "clients/python/tests",
    ]);
}

/// Most scripts measure and run before a release alone.
#[test]
fn no_python_of_the_project_uses_a_name_that_it_does_not_have() {
    check_python(&["pyflakes", "scripts", "clients", "examples"]);
}

/// Runs a module of Python that reads sources, and fails as it does.
fn check_python(arguments: &[&str]) {
    let python = "tools/servers/python-clients/bin/python";
    if is_installed(python) {
        let mut check = bounded(SUITE_SECONDS, &Path::new(ROOT).join(python), &["-m"]);
        let check = check.args(arguments).current_dir(ROOT).output().unwrap();
        let [out, err] = [&check.stdout, &check.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(check.status.success(), "{} (124: not within {SUITE_SECONDS} s)\n{out}{err}", check.status);
    }
}

#[test]
fn what_is_made_of_other_files_is_current() {
    if !is_installed("tools/node_modules/openapi-typescript") {
        return;
    }
    for script in ["clients/typescript/build.mjs", "clients/vectors.mjs", "clients/erc8128.mjs"] {
        let check = Command::new("node").args([script, "--check"]).current_dir(ROOT).output().unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    }
}
