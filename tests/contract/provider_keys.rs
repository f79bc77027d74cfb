//! Nodes of a provider: behind TLS, with keys in every place where providers take them. The node gets all of them, nobody
//! else any.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alloy::primitives::{Bytes, U256};
use alloy::sol_types::SolValue;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use toml::Table;

use crate::support::harness::{Case, cases};
use crate::support::time::{SOON, until};
use crate::support::{process::own_ip, secrets, service::Service, world::World};

pub(crate) const CASES: &[Case<World>] = cases![
    a_node_behind_tls_is_believed_by_the_systems_authorities_alone,
    keys_go_to_their_node_and_are_nowhere_else,
];

/// `signature.chain_id`, as a node writes it.
const OURS: &str = "0x1f44";

/// A node on another chain is asked for its chain id, and nothing else.
const ANOTHER: &str = "0x1";

/// A key in each place; the last is the user info as basic authentication writes it.
const SECRETS: [&str; 7] = [
    "provider-user",
    "provider-password",
    "path-secret-1",
    "query-secret-2",
    "header-secret-3",
    "file-secret-4",
    "cHJvdmlkZXItdXNlcjpwcm92aWRlci1wYXNzd29yZA==",
];

/// A node behind TLS that knows just enough for a service to be ready, and quotes all that it was sent.
struct TlsNode {
    address: SocketAddr,
    authority_pem: String,
    heads: Arc<Mutex<String>>,
    /// Contract calls get errors that quote the keys.
    quotes: Arc<AtomicBool>,
}

impl TlsNode {
    /// A node on this chain.
    fn on_chain(id: &'static str) -> Self {
        let listener = TcpListener::bind((own_ip(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (authority_pem, config) = certificates(address.ip());
        let heads = Arc::new(Mutex::new(String::new()));
        let quotes = Arc::new(AtomicBool::new(false));
        let (seen, quoting) = (Arc::clone(&heads), Arc::clone(&quotes));
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, seen) = (Arc::clone(&config), Arc::clone(&seen));
                let quoting = Arc::clone(&quoting);
                std::thread::spawn(move || serve(stream, config, id, (&seen, &quoting)));
            }
        });
        Self { address, authority_pem, heads, quotes }
    }

    fn origin(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The heads of all requests.
    fn heads(&self) -> String {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn certificates(ip: IpAddr) -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new([ip.to_string()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    (authority.pem(), Arc::new(config))
}

/// One request; nothing when the client does not believe the certificate.
fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    chain: &str,
    (seen, quotes): (&Mutex<String>, &AtomicBool),
) -> Option<()> {
    let mut stream = StreamOwned::new(ServerConnection::new(config).ok()?, stream);
    let (head, body) = read_request(&mut stream)?;
    let request: Value = serde_json::from_slice(&body).ok()?;
    seen.lock().unwrap_or_else(PoisonError::into_inner).push_str(&head);
    let answer = |call: &Value| {
        let mut answer = match call["method"].as_str()? {
            "eth_chainId" => json!({ "result": chain }),
            "eth_getBlockByNumber" => json!({ "result": block() }),
            "eth_getLogs" => json!({ "result": [] }),
            "eth_call" if !quotes.load(Ordering::SeqCst) => json!({ "result": contracts(chain) }),
            _ => json!({ "error": { "code": -32_000, "message": keys_in(&head) } }),
        };
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = call["id"].clone();
        Some(answer)
    };
    let answer = match request.as_array() {
        Some(calls) => Value::Array(calls.iter().map(answer).collect::<Option<_>>()?),
        None => answer(&request)?,
    };
    let answer = answer.to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
    stream.write_all((head + &answer).as_bytes()).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

/// What Multicall3 returns where every contract is there: chain, number and time of the block, and a word for each other call, of
/// which two are about hashes and five about contracts; the last one, Arbitrum's, has no answer.
fn contracts(chain: &str) -> Bytes {
    let chain = u64::from_str_radix(chain.trim_start_matches("0x"), 16).unwrap();
    let word = |number: u64| (true, Bytes::from(U256::from(number).to_be_bytes_vec()));
    let dates = [word(chain), word(1), word(1)];
    let results: Vec<_> =
        dates.into_iter().chain((0..7).map(|_| word(1))).chain([(true, Bytes::new())]).collect();
    (results,).abi_encode_params().into()
}

fn block() -> Value {
    let hash = format!("0x{}", "1".repeat(64));
    json!({ "number": "0x1", "hash": hash, "parentHash": hash, "timestamp": "0x1" })
}

/// The lines of a head that hold keys: short enough that nothing of them is cut off.
fn keys_in(head: &str) -> String {
    let lines = head.lines().filter(|line| line.starts_with("x-") || line.starts_with("authorization"));
    lines.collect::<Vec<_>>().join(" ")
}

fn read_request(stream: &mut impl Read) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = head.to_lowercase().lines().find_map(|line| {
            line.strip_prefix("content-length:").map(|length| length.trim().parse::<usize>().unwrap())
        });
        if bytes.len() >= end + 4 + length? {
            return Some((head, bytes.split_off(end + 4)));
        }
    }
}

/// A service whose first node has a key in every place, and whose second has none.
fn with_keys(world: &World, [node, other]: [&TlsNode; 2]) -> Service {
    SECRETS.iter().copied().for_each(secrets::keep);
    let path = "v3/path-secret-1?key=query-secret-2";
    let url = format!("https://provider-user:provider-password@{}/{path}", node.address);
    let origin = node.origin();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    fs::write(&file, "file-secret-4\n").unwrap();
    let header = |name: &str, key: &str, value: &str| {
        let pairs = [("url", origin.as_str()), ("name", name), (key, value)];
        Table::from_iter(pairs.map(|(key, value)| (key.to_owned(), toml::Value::from(value))))
    };
    let headers = vec![
        header("x-api-key", "value", "header-secret-3"),
        header("x-file-key", "value_file", file.to_str().unwrap()),
    ];
    let settings = world.settings().set("chain.rpc_urls", vec![url, other.origin()]);
    let mut service = Service::prepare(settings.set("chain.rpc_headers", headers));
    let authority = service.folder.path().join("authority.pem");
    fs::write(&authority, format!("{}{}", node.authority_pem, other.authority_pem)).unwrap();
    service.start_again(&format!("export SSL_CERT_FILE={}", authority.display()));
    service.await_ready();
    service
}

fn a_node_behind_tls_is_believed_by_the_systems_authorities_alone(world: &World) {
    let node = TlsNode::on_chain(OURS);
    with_keys(world, [&node, &node]);
    assert!(node.heads().contains("authorization: Basic"));

    // Without this authority among the system's, such a node is not believed, and gets no key.
    let stranger = TlsNode::on_chain(OURS);
    let url = format!("https://key-5@{}/", stranger.address);
    let service = Service::start_unready(world.settings().set("chain.rpc_urls", vec![url]));
    assert_eq!(service.get("/readyz").status, 503);
    until("the log says why", SOON, || service.log().to_lowercase().contains("certificate").then_some(()));
    assert_eq!(stranger.heads(), "");
}

// threat: Providers' keys in `rpcUrl`
fn keys_go_to_their_node_and_are_nowhere_else(world: &World) {
    let (node, other) = (TlsNode::on_chain(OURS), TlsNode::on_chain(ANOTHER));
    let service = with_keys(world, [&node, &other]);
    // The node quotes the keys that it was sent.
    node.quotes.store(true, Ordering::SeqCst);
    let answer = service.verify_signature(&world.agent(4).signed());
    answer.error(503, "RPC_ERROR");
    let heads = node.heads();
    for sent in [
        "POST /v3/path-secret-1?key=query-secret-2 HTTP/1.1",
        "authorization: Basic cHJvdmlkZXItdXNlcjpwcm92aWRlci1wYXNzd29yZA==",
        "x-api-key: header-secret-3",
        "x-file-key: file-secret-4",
    ] {
        assert!(heads.contains(sent), "{sent} in {heads}");
    }
    let told = format!("eth_call at {} failed: the node answered with error -32000", node.origin());
    let log =
        until("the log has the node's words", SOON, || Some(service.log()).filter(|log| log.contains(&told)));
    let metrics = service.metrics();
    assert!(metrics.contains(&format!("tiergate_rpc_node_healthy{{endpoint=\"{}\"}} 1", node.origin())));
    let said = format!("{} {log} {metrics}", answer.text());
    let elsewhere = other.heads();
    assert!(!elsewhere.is_empty());
    for secret in SECRETS {
        assert!(!said.contains(secret), "{secret} in {said}");
        assert!(!elsewhere.contains(secret), "{secret} in {elsewhere}");
    }
}
