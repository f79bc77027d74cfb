//! HTTP/2 in the clear with prior knowledge: a client, and an upstream that writes down what it is sent.

use std::sync::{Arc, Mutex};
use std::{future::Future, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::rig::frames::{HEADERS, PREFACE, SETTINGS, frame};
use crate::rig::upstream::lock;
use crate::support::process::own_ip;

/// How long an exchange may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// A request or an answer with everything that belongs to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    /// Of a request.
    pub(crate) method: Method,
    /// Of a request.
    pub(crate) uri: http::Uri,
    /// Of an answer.
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
}

impl Message {
    pub(crate) fn request(method: Method, host: &str, path: &str) -> Self {
        let uri = format!("http://{host}{path}").parse().unwrap();
        Self { method, uri, ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        let name: http::HeaderName = name.parse().unwrap();
        self.headers.append(name, value.parse().unwrap());
        self
    }

    pub(crate) fn body(self, body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..self }
    }

    pub(crate) fn trailer(mut self, name: &str, value: &str) -> Self {
        let name: http::HeaderName = name.parse().unwrap();
        self.trailers.append(name, value.parse().unwrap());
        self
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Runs what has to end soon.
pub(crate) fn run<T>(what: impl Future<Output = T>) -> T {
    let runtime = runtime();
    runtime.block_on(async { tokio::time::timeout(ANSWER_WITHIN, what).await }).unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Sends one request on a connection of its own and reads its answer.
pub(crate) fn ask(gateway: SocketAddr, request: &Message) -> Result<Message, h2::Error> {
    run(async {
        let client = connect(gateway).await?;
        exchange(client, request).await
    })
}

/// A connection that is driven in the background.
pub(crate) async fn connect(gateway: SocketAddr) -> Result<h2::client::SendRequest<Bytes>, h2::Error> {
    let stream = TcpStream::connect(gateway).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (client, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

/// Sends a request and reads its answer.
pub(crate) async fn exchange(
    client: h2::client::SendRequest<Bytes>,
    request: &Message,
) -> Result<Message, h2::Error> {
    let mut client = client.ready().await?;
    let mut head = Request::new(());
    *head.method_mut() = request.method.clone();
    *head.uri_mut() = request.uri.clone();
    *head.headers_mut() = request.headers.clone();
    let ends = request.body.is_empty() && request.trailers.is_empty();
    let (answer, mut body) = client.send_request(head, ends)?;
    // A gateway that has answered already may have closed the other direction.
    let _ = send_rest(&mut body, request, ends);
    let (head, incoming) = answer.await?.into_parts();
    let (body, trailers) = read_rest(incoming).await?;
    Ok(Message { status: head.status.as_u16(), headers: head.headers, body, trailers, ..Message::default() })
}

fn send_rest(to: &mut h2::SendStream<Bytes>, message: &Message, ends: bool) -> Result<(), h2::Error> {
    if !ends {
        to.send_data(message.body.clone().into(), message.trailers.is_empty())?;
    }
    if message.trailers.is_empty() { Ok(()) } else { to.send_trailers(message.trailers.clone()) }
}

async fn read_rest(mut from: h2::RecvStream) -> Result<(Vec<u8>, HeaderMap), h2::Error> {
    let mut body = Vec::new();
    while let Some(piece) = from.data().await {
        let piece = piece?;
        from.flow_control().release_capacity(piece.len())?;
        body.extend_from_slice(&piece);
    }
    Ok((body, from.trailers().await?.unwrap_or_default()))
}

/// An upstream that speaks HTTP/2 alone.
pub(crate) struct H2Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Message>>>,
    _runtime: Runtime,
}

impl H2Upstream {
    /// Answers every request, once it has come whole, with what `answer` makes of it.
    pub(crate) fn start(answer: fn(&Message) -> Message) -> Self {
        Self::listen(answer, std::iter::empty())
    }

    fn listen(
        answer: fn(&Message) -> Message,
        mut said: impl Iterator<Item = Vec<u8>> + Send + 'static,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((own_ip(), 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&seen);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                match said.next() {
                    Some(frames) => drop(tokio::spawn(say(stream, frames))),
                    None => drop(tokio::spawn(converse(stream, answer, Arc::clone(&shared)))),
                }
            }
        });
        Self { address, seen, _runtime: runtime }
    }

    /// Says this to its first client, at the client's first request, and nothing else to it; answers others 200.
    pub(crate) fn that_first_says(frames: Vec<u8>) -> Self {
        Self::listen(Self::ok, std::iter::once(frames))
    }

    /// Takes connections, and says nothing to any.
    pub(crate) fn silent() -> Self {
        Self::listen(Self::ok, std::iter::repeat(Vec::new()))
    }

    /// The plainest of answers.
    pub(crate) fn ok(_: &Message) -> Message {
        Message { status: 200, ..Message::default() }.body(b"ok")
    }

    pub(crate) fn seen(&self) -> Vec<Message> {
        lock(&self.seen).clone()
    }

    /// The one request for a path.
    #[track_caller]
    pub(crate) fn only(&self, path: &str) -> Message {
        let mut seen = self.seen();
        seen.retain(|message| message.uri.path() == path);
        assert_eq!(seen.len(), 1, "requests for {path}: {seen:?}");
        seen.remove(0)
    }
}

async fn converse(stream: TcpStream, answer: fn(&Message) -> Message, seen: Arc<Mutex<Vec<Message>>>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            let _ = answer_one(request, respond, answer, &seen).await;
        });
    }
}

async fn say(mut stream: TcpStream, frames: Vec<u8>) -> std::io::Result<()> {
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    stream.read_exact(&mut [0; PREFACE.len()]).await?;
    let (mut head, mut rest) = ([0; 9], Vec::new());
    while head[3] != HEADERS {
        stream.read_exact(&mut head).await?;
        rest.resize(u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize, 0);
        stream.read_exact(&mut rest).await?;
    }
    stream.write_all(&frames).await?;
    while stream.read_buf(&mut rest).await? > 0 {}
    Ok(())
}

async fn answer_one(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    answer: fn(&Message) -> Message,
    seen: &Mutex<Vec<Message>>,
) -> Result<(), h2::Error> {
    let (head, incoming) = request.into_parts();
    let (body, trailers) = read_rest(incoming).await?;
    let request =
        Message { method: head.method, uri: head.uri, headers: head.headers, body, trailers, status: 0 };
    lock(seen).push(request.clone());
    let answer = answer(&request);
    let mut head = Response::new(());
    *head.status_mut() = answer.status.try_into().unwrap();
    *head.headers_mut() = answer.headers.clone();
    let ends = answer.body.is_empty() && answer.trailers.is_empty();
    let mut to = respond.send_response(head, ends)?;
    send_rest(&mut to, &answer, ends)
}
