//! One JSON-RPC call over HTTP to one node. What a node may make us read is bounded, and nothing of its URL gets out.
//!
//! Knows no method and no contract. An error that the node reports in JSON-RPC is an answer here, whatever its HTTP
//! status is; who called judges it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy::rpc::json_rpc::{ErrorPayload, Id, Request, Response, ResponsePayload};
use arc_swap::ArcSwap;
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

use crate::chain::fault::ReadError;
use crate::chain::redact::Secrets;
use crate::domain::rpc_header::RpcHeader;
use crate::domain::rpc_url::RpcUrl;
use crate::domain::secret::Secret;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;
use crate::within::within;

/// The longest answer that is read, in bytes. A profile has a few KiB, a large one half of it; a hostile node would have no
/// end. With all places taken, answers need 128 MiB at most.
pub(in crate::chain) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The longest answer with logs, in bytes. The follower alone asks for logs, and for one answer at a time.
const LOGS_BYTES_MAX: usize = 8 * ANSWER_BYTES_MAX;

/// The HTTP client of one node, with a pool of connections of its own.
pub(super) fn client(connect_timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(connect_timeout)
        .no_proxy()
        .build()
}

/// One node.
pub(super) struct Node {
    http: ArcSwap<reqwest::Client>,
    connect_timeout: Duration,
    url: Url,
    /// The provider's, marked as not to be shown.
    headers: HeaderMap,
    endpoint: Arc<str>,
    name: Arc<str>,
    secrets: Secrets,
    next_id: AtomicU64,
}

/// What a node answered: the JSON of the result, or its error.
pub(super) type NodeAnswer = Result<Box<RawValue>, ErrorPayload>;

impl Node {
    /// The node at `url`; of `headers` it gets those of its origin, and `before` it there are so many of its origin.
    ///
    /// # Errors
    ///
    /// When no HTTP client can be made, as without a TLS provider.
    pub(super) fn new(
        url: &RpcUrl,
        headers: &[RpcHeader<Secret>],
        connect_timeout: Duration,
        before: usize,
    ) -> Result<Self, reqwest::Error> {
        let http = client(connect_timeout)?;
        let ours = headers.iter().filter(|header| header.origin == url.origin());
        let values: Vec<&str> = ours.clone().map(|header| header.value.reveal()).collect();
        let name = match before {
            0 => url.origin().to_owned(),
            _ => format!("{}#{}", url.origin(), before + 1),
        };
        Ok(Self {
            name: Arc::from(name),
            url: url.reveal().clone(),
            headers: ours.filter_map(written).collect(),
            endpoint: Arc::from(url.origin()),
            secrets: Secrets::of(url.reveal()).and(&values).and(&basic_authentication(&http, url)),
            next_id: AtomicU64::new(1),
            http: ArcSwap::from_pointee(http),
            connect_timeout,
        })
    }

    /// Leaves all its connections. What was kept open to a node that failed may be dead without our knowing, and each
    /// such connection would cost one more failure before it is found out.
    pub(super) fn begin_anew(&self) {
        if let Ok(http) = client(self.connect_timeout) {
            self.http.store(Arc::new(http));
        }
    }

    /// Scheme, host and port: what may be shown of the node.
    pub(super) const fn endpoint(&self) -> &Arc<str> {
        &self.endpoint
    }

    /// What it is called where one node is told from another: where several share an endpoint, the later ones are numbered.
    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The result in an answer to a call that can't revert.
    pub(super) fn result<T: DeserializeOwned>(&self, answer: NodeAnswer) -> Result<T, ReadError> {
        read_json(answer.map_err(|error| self.error(&error))?.get())
    }

    /// The words for an error that the node reported.
    pub(super) fn error(&self, payload: &ErrorPayload) -> ReadError {
        ReadError::Node { code: payload.code, message: self.secrets.strip(&payload.message) }
    }

    /// Sends one call that may take so long, and counts it.
    pub(super) async fn ask_within(
        &self,
        limit: Duration,
        method: &'static str,
        params: Value,
        clock: &dyn Clock,
        metrics: &Metrics,
    ) -> Result<NodeAnswer, ReadError> {
        let limited = within(limit, async {
            metrics.rpc_calls.with_label_values(&[method]).inc();
            let begun = clock.monotonic_micros();
            let answer = self.ask(method, params).await;
            let micros = clock.monotonic_micros().saturating_sub(begun);
            metrics.rpc_duration.with_label_values(&[method]).observe(micros as f64 / 1e6);
            answer
        });
        limited.await.unwrap_or(Err(ReadError::TimedOut(limit.as_millis())))
    }

    async fn ask(&self, method: &'static str, params: Value) -> Result<NodeAnswer, ReadError> {
        let id = Id::Number(self.next_id.fetch_add(1, Ordering::Relaxed));
        let request = serde_json::to_vec(&Request::new(method, id.clone(), params));
        let request = request.map_err(|_| ReadError::Unintelligible("the call could not be written"))?;
        let post =
            self.http.load().post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(request);
        let answer = post.headers(self.headers.clone()).send().await.map_err(|error| self.broken(&error))?;
        let status = answer.status();
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(ReadError::RateLimited(retry_after(answer.headers())));
        }
        let bytes_max = if method == "eth_getLogs" { LOGS_BYTES_MAX } else { ANSWER_BYTES_MAX };
        let body = self.body(answer, bytes_max).await?;
        let response: Response = match serde_json::from_slice(&body) {
            Ok(response) => response,
            Err(_) if !status.is_success() => return Err(ReadError::HttpStatus(status.as_u16())),
            Err(_) => return Err(ReadError::Unintelligible("it is not JSON-RPC")),
        };
        // A node that could not read the call's id reports its error without one.
        match response.payload {
            ResponsePayload::Failure(error) if response.id == id || response.id.is_none() => Ok(Err(error)),
            ResponsePayload::Success(_) if !status.is_success() => {
                Err(ReadError::HttpStatus(status.as_u16()))
            }
            ResponsePayload::Success(result) if response.id == id => Ok(Ok(result)),
            ResponsePayload::Success(_) | ResponsePayload::Failure(_) => {
                Err(ReadError::Unintelligible("it belongs to another call"))
            }
        }
    }

    async fn body(&self, mut answer: reqwest::Response, bytes_max: usize) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.broken(&error))? {
            if piece.len() > bytes_max - body.len() {
                return Err(ReadError::TooLong(bytes_max));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// The innermost cause alone: the outer ones quote the URL.
    fn broken(&self, error: &reqwest::Error) -> ReadError {
        let mut text = "no further cause is known".to_owned();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            text = inner.to_string();
            cause = inner.source();
        }
        ReadError::Connection(self.secrets.strip(&text))
    }
}

/// A header as it is sent. The configuration admits nothing that can't be.
fn written(header: &RpcHeader<Secret>) -> Option<(HeaderName, HeaderValue)> {
    let name = header.name.parse().ok()?;
    let mut value: HeaderValue = header.value.reveal().parse().ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// What user info in the URL is sent as: a node may quote that, too.
fn basic_authentication(http: &reqwest::Client, url: &RpcUrl) -> Vec<String> {
    let request = http.post(url.reveal().clone()).build().ok();
    let sent =
        request.and_then(|request| request.headers().get(AUTHORIZATION)?.to_str().ok().map(str::to_owned));
    sent.into_iter().collect()
}

/// A result of the kind that was asked for.
pub(super) fn read_json<T: DeserializeOwned>(json: &str) -> Result<T, ReadError> {
    serde_json::from_str(json).map_err(|_| ReadError::Unintelligible("its result is not what was asked for"))
}

/// For how long the node wants to be left alone; a date counts as not said.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let secs = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(secs))
}
