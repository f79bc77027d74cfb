//! What the tests of this folder share: a node on loopback that does as it is told, and a reader to look at it with.

use std::sync::{Arc, Once};
use std::time::Duration;

use alloy::primitives::{Address, U256, address};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::chain::tests::clock::{TestClock, Work, pass};
use crate::chain::tests::results::{asked_for, created, dated, hex};
use crate::chain::{dated::Result3, pool::Pool, reader::ChainReader};
use crate::domain::{
    AgentId, Details, Lifetimes, Measure, PoolSettings, ReaderSettings, Registries, RegistrySet, RpcUrl,
    TrustProfile,
};
use crate::ports::Clock;
use crate::telemetry::Metrics;

/// How long a profile serves in these tests.
pub(super) const LIFETIME: Duration = Duration::from_secs(1);

/// How long the follower may be silent in these tests.
pub(super) const STALENESS: Duration = Duration::from_secs(5);

/// After which time a profile that no log named is read again in these tests.
pub(super) const REREAD: Duration = Duration::from_secs(3_600);

/// Where Multicall3 is, unless a chain says otherwise.
pub(super) const MULTICALL: Address = address!("0x0000000000000000000000000000000000000016");

/// Long enough for any answer over loopback.
pub(super) const PATIENT: Duration = Duration::from_secs(20);

pub(super) const OWNER: Address = address!("0x70997970C51812dc3A010C7d01b50e0d17dc79C8");

/// Addresses that a scripted node need not know.
pub(super) const ALL: Registries = Registries {
    identity: address!("0x0000000000000000000000000000000000000011"),
    stake_vault: Some(address!("0x0000000000000000000000000000000000000012")),
    reputation: Some(address!("0x0000000000000000000000000000000000000013")),
    validation: Some(address!("0x0000000000000000000000000000000000000014")),
    set: RegistrySet::Documented {
        organization: Some(address!("0x0000000000000000000000000000000000000015")),
    },
};

/// The same of ERC-8004.
pub(super) const ERC8004: Registries =
    Registries { set: RegistrySet::Erc8004 { feedback_max: 1_000 }, ..ALL };

/// What a node does with one request.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// A JSON-RPC result.
    Result(Value),
    /// As much of these results as a read of one agent asks for, of what decides or of details, at this block.
    Agent(u64, Vec<Result3>),
    /// A JSON-RPC error: code, message, data.
    Error(i64, String, Option<Value>),
    /// An HTTP status and a body of any kind; `ID` in it becomes the request's id.
    Http(u16, String),
    /// The connection is closed in the middle of an answer.
    CloseMidway,
    /// Nothing ever comes.
    Hang,
    /// HTTP status 429, to be left alone for so many seconds.
    RetryAfter(u64),
    /// Another reply, so much later.
    Late(Duration, Box<Reply>),
    /// Another reply, once there is a permit for it.
    Gated(Arc<Semaphore>, Box<Reply>),
    /// An answer that has no end.
    Endless,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all others stay what they are")]
impl Reply {
    fn to(self, request: &Value) -> Self {
        match self {
            Self::Agent(number, results) if request["params"][0].get("to").is_some() => {
                Self::Result(hex(dated(number, asked_for(request, &results))))
            }
            Self::Agent(number, results) => Self::Result(hex(created(number, &results))),
            Self::Late(latency, then) => Self::Late(latency, Box::new(then.to(request))),
            Self::Gated(gate, then) => Self::Gated(gate, Box::new(then.to(request))),
            other => other,
        }
    }
}

/// The chain of a node that is told nothing else, and of the development chain of tests.
pub(super) const CHAIN_ID: u64 = 31_337;

/// The head of a node that is told nothing else.
pub(super) const HEAD: u64 = 1_000;

/// A node on loopback.
pub(super) struct TestNode {
    pub(super) authority: String,
    seen: Arc<Mutex<Vec<Value>>>,
    sent: Arc<Mutex<usize>>,
    _socket: Option<TcpSocket>,
}

impl TestNode {
    /// A node that does with each request as `script` says.
    pub(super) async fn start(script: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::serving(move |request| match request.as_array() {
            Some(calls) => batch(calls, |call| script(call)),
            None => script(request),
        })
        .await
    }

    /// A node that takes single calls only.
    #[cfg(feature = "dev-chain")]
    pub(super) async fn refusing_batches(script: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let refused = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no batches"}}"#;
        Self::serving(
            move |request| {
                if request.is_array() { Reply::Http(200, refused.to_owned()) } else { script(request) }
            },
        )
        .await
    }

    /// A node that does with each request, which may be a batch, as `script` says.
    async fn serving(script: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let (seen, sent) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (script, noted, counted) = (Arc::new(script), Arc::clone(&seen), Arc::clone(&sent));
        let work = Work::of_this_test();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, noted, counted) = (script.clone(), noted.clone(), counted.clone());
                let work = Arc::clone(&work);
                let mut working = work.begin();
                tokio::spawn(async move {
                    let mut stream = stream;
                    let request = read_request(&mut stream).await?;
                    match request.as_array() {
                        Some(calls) => noted.lock().extend(calls.iter().cloned()),
                        None => noted.lock().push(request.clone()),
                    }
                    let mut reply = script(&request);
                    if matches!(reply, Reply::Hang) {
                        drop(working);
                        return std::future::pending().await;
                    }
                    if let Reply::Late(latency, then) = reply {
                        drop(working);
                        pass(latency).await;
                        working = work.begin();
                        reply = *then;
                    }
                    let written = write_reply(&mut stream, &request["id"], reply, &counted).await;
                    drop(working);
                    written
                });
            }
        });
        Self { authority, seen, sent, _socket: None }
    }

    /// A node that is up and on the right chain, and does the same with everything else.
    pub(super) async fn always(reply: Reply) -> Self {
        Self::answering(move |_| reply.clone()).await
    }

    /// A node that is up and on the right chain, and does with everything else as `script` says.
    pub(super) async fn answering(script: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(move |request| vital(request).unwrap_or_else(|| script(request).to(request))).await
    }

    /// An address where nobody listens and nobody else can.
    pub(super) fn refusing() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let authority = socket.local_addr().unwrap().to_string();
        Self { authority, seen: Arc::default(), sent: Arc::default(), _socket: Some(socket) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// How many requests came, by method.
    pub(super) fn calls(&self, method: &str) -> usize {
        self.seen.lock().iter().filter(|request| request["method"] == method).count()
    }

    /// How many requests came, but for those that look after the node.
    #[cfg(feature = "dev-chain")]
    pub(super) fn all_calls(&self) -> usize {
        let looks_after =
            |request: &&Value| request["method"] != "eth_chainId" && request["method"] != "eth_blockNumber";
        self.seen.lock().iter().filter(looks_after).count()
    }

    /// How many bytes of an endless answer were taken.
    pub(super) fn bytes_sent(&self) -> usize {
        *self.sent.lock()
    }

    /// The last `eth_call`.
    pub(super) fn last_call(&self) -> Value {
        let seen = self.seen.lock();
        seen.iter().rfind(|request| request["method"] == "eth_call").unwrap().clone()
    }
}

/// The reply to a batch: that of its calls, or the first that is none of JSON-RPC.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others are none")]
fn batch(calls: &[Value], script: impl Fn(&Value) -> Reply) -> Reply {
    let mut answers = Vec::new();
    for call in calls {
        answers.push(match script(call) {
            Reply::Result(result) => json!({"jsonrpc": "2.0", "id": call["id"], "result": result}),
            Reply::Error(code, message, data) => error(&call["id"], code, &message, data),
            Reply::Http(200, body) => {
                serde_json::from_str(&body.replace("ID", &call["id"].to_string())).unwrap()
            }
            other => return other,
        });
    }
    Reply::Http(200, Value::Array(answers).to_string())
}

fn error(id: &Value, code: i64, message: &str, data: Option<Value>) -> Value {
    let mut error = json!({"code": code, "message": message});
    if let Some(data) = data {
        error["data"] = data;
    }
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

/// What a healthy node says of itself.
pub(super) fn vital(request: &Value) -> Option<Reply> {
    match request["method"].as_str() {
        Some("eth_chainId") => Some(Reply::Result(json!(format!("{CHAIN_ID:#x}")))),
        Some("eth_blockNumber") => Some(Reply::Result(json!(format!("{HEAD:#x}")))),
        _ => None,
    }
}

async fn read_request(stream: &mut TcpStream) -> std::io::Result<Value> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 16 * 1024];
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&piece[..count]);
        let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let body = &bytes[head + 4..];
        let length = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
        let length = length.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap().trim();
        if body.len() >= length.parse().unwrap() {
            return Ok(serde_json::from_slice(body)?);
        }
    }
}

async fn write_reply(
    stream: &mut TcpStream,
    id: &Value,
    mut reply: Reply,
    sent: &Mutex<usize>,
) -> std::io::Result<()> {
    while let Reply::Gated(gate, then) = reply {
        gate.acquire().await.map_err(std::io::Error::other)?.forget();
        reply = *then;
    }
    let (status, body) = match reply {
        Reply::Result(result) => (200, json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()),
        Reply::Error(code, message, data) => (200, error(id, code, &message, data).to_string()),
        Reply::Http(status, body) => (status, body.replace("ID", &id.to_string())),
        Reply::CloseMidway => {
            return stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"jsonrpc\"").await;
        }
        Reply::RetryAfter(secs) => {
            let head = format!("HTTP/1.1 429 Status\r\nretry-after: {secs}\r\ncontent-length: 0\r\n\r\n");
            return stream.write_all(head.as_bytes()).await;
        }
        Reply::Hang | Reply::Late(..) | Reply::Gated(..) | Reply::Agent(..) => return Ok(()),
        Reply::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"result\":\"0x").await?;
            loop {
                stream.write_all(&[b'0'; 64 * 1024]).await?;
                *sent.lock() += 64 * 1024;
            }
        }
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// A reader, its clock and its metrics.
pub(super) struct Bench {
    pub(super) reader: Arc<ChainReader>,
    pub(super) clock: Arc<TestClock>,
    pub(super) metrics: Metrics,
}

/// HTTP clients need it.
pub(super) fn provide_crypto() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(pingora::tls::install_default_crypto_provider);
}

/// A pool of these nodes, which try for so long each.
pub(super) fn pool(
    urls: &[String],
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
) -> Pool {
    provide_crypto();
    let settings = PoolSettings {
        urls: urls.iter().map(|url| RpcUrl::parse(url).unwrap()).collect(),
        request_timeout,
        calls_per_second: None,
        proxy: None,
        chain_id: CHAIN_ID,
    };
    Pool::new(&settings, &[], clock, metrics.clone()).unwrap()
}

/// A reader of these registries through these nodes, whose blocks may be of any age.
pub(super) fn bench(urls: &[String], registries: Registries, request_timeout: Duration) -> Bench {
    bench_with(urls, (registries, MULTICALL), request_timeout)
}

/// The same, with Multicall3 at this address.
pub(super) fn bench_with(
    urls: &[String],
    (registries, multicall): (Registries, Address),
    request_timeout: Duration,
) -> Bench {
    bench_of(urls, (registries, Vec::new()), multicall, (request_timeout, None))
}

/// A reader with these numbers that give tiers.
#[cfg(feature = "dev-chain")]
pub(super) fn bench_measuring(
    urls: &[String],
    (registries, multicall): (Registries, Address),
    measures: Vec<Measure>,
) -> Bench {
    bench_of(urls, (registries, measures), multicall, (PATIENT, None))
}

/// A reader that judges how old blocks are.
pub(super) fn bench_judging(urls: &[String], max_age: Duration) -> Bench {
    bench_of(urls, (ALL, Vec::new()), MULTICALL, (PATIENT, Some(max_age)))
}

fn bench_of(
    urls: &[String],
    (registries, measures): (Registries, Vec<Measure>),
    multicall: Address,
    (request_timeout, max_head_age): (Duration, Option<Duration>),
) -> Bench {
    let (clock, metrics) = (Arc::new(TestClock::new()), Metrics::new().unwrap());
    let pool = Arc::new(pool(urls, request_timeout, clock.clone(), &metrics));
    let lifetimes =
        Lifetimes { poll_interval: LIFETIME, max_staleness: STALENESS, reread_after: Some(REREAD) };
    let settings = ReaderSettings { registries, multicall, gas_cap: 50_000_000, max_head_age, lifetimes };
    let reader = ChainReader::new(pool, (settings, measures), clock.clone(), &metrics, &Handle::current());
    Bench { reader: Arc::new(reader), clock, metrics }
}

pub(super) fn agent(id: u64) -> AgentId {
    AgentId::new(U256::from(id))
}

pub(super) fn details(profile: &TrustProfile) -> &Details {
    profile.details.as_ref().unwrap()
}

/// The kind of the error that a fault of the port tells.
pub(super) fn kind_of(cause: &str) -> &'static str {
    let texts = [
        ("the details of the agent", "no_details"),
        ("can't be understood", "unintelligible"),
        ("answered with error", "node_error"),
        ("answered with HTTP status", "http_status"),
        ("lacks the block", "no_block"),
        ("limits the rate", "rate_limited"),
        ("is longer than", "too_long"),
        ("connection failed", "connection"),
        ("no eth_call without", "no_creation"),
        ("has version", "version"),
        ("is on chain", "wrong_chain"),
        ("no answer within", "timeout"),
        ("can't be decoded", "undecodable"),
        ("there is no contract", "no_code"),
        ("reverted", "reverted"),
    ];
    texts.iter().find(|(text, _)| cause.contains(text)).unwrap().1
}
