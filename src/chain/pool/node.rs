//! One JSON-RPC request, or batch, over HTTP to one node. Answers are bounded, and no secret of the URL gets out.
//!
//! Knows no method and no contract. A JSON-RPC error is an answer here, whatever its HTTP status is, unless it limits our
//! rate; the caller judges it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy::rpc::json_rpc::{ErrorPayload, Id, Request as Written, Response, ResponsePayload};
use arc_swap::ArcSwap;
use governor::clock::{Clock as _, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
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

/// The longest answer that is read, in bytes. A profile has a few KiB, a large one half of it. With all places taken,
/// answers need 128 MiB at most.
pub(in crate::chain) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The longest answer with logs, in bytes. The follower asks for one at a time.
const LOGS_BYTES_MAX: usize = 8 * ANSWER_BYTES_MAX;

/// After a renewal of the connections there is none for so long, in microseconds.
const RENEWAL_PAUSE_MICROS: u64 = 100_000;

/// JSON-RPC error codes by which nodes limit rates: HTTP's own, "limit exceeded" of EIP-1474, and those of providers.
const RATE_LIMIT_CODES: [i64; 5] = [429, LIMIT_EXCEEDED_CODE, -32_007, -32_016, -32_029];

const LIMIT_EXCEEDED_CODE: i64 = -32_005;

/// One call of a request.
#[derive(Debug, Clone)]
pub(in crate::chain) struct Call {
    pub(in crate::chain) method: &'static str,
    pub(in crate::chain) params: Value,
}

/// The JSON of a result, or the node's error.
pub(in crate::chain) type NodeAnswer = Result<Box<RawValue>, ErrorPayload>;

/// How nodes are reached.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) connect_timeout: Duration,
    pub(super) proxy: Option<RpcUrl>,
    pub(super) calls_per_second: Option<NonZeroU32>,
}

impl Access {
    fn client(&self) -> Result<reqwest::Client, reqwest::Error> {
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.connect_timeout);
        match &self.proxy {
            Some(proxy) => builder.proxy(reqwest::Proxy::all(proxy.reveal().clone())?).build(),
            None => builder.no_proxy().build(),
        }
    }
}

type Rate = RateLimiter<NotKeyed, InMemoryState, MonotonicClock, NoOpMiddleware<std::time::Instant>>;

/// One node.
pub(in crate::chain) struct Node {
    http: ArcSwap<reqwest::Client>,
    renewed_micros: AtomicU64,
    access: Access,
    rate: Option<Rate>,
    url: Url,
    /// The provider's headers, marked as sensitive.
    headers: HeaderMap,
    endpoint: Arc<str>,
    name: Arc<str>,
    secrets: Secrets,
    next_id: AtomicU64,
}

impl Node {
    /// The node at `url`. Of `headers` it gets those of its origin; `before` nodes of its origin precede it.
    pub(super) fn new(
        url: &RpcUrl,
        headers: &[RpcHeader<Secret>],
        access: Access,
        before: usize,
    ) -> Result<Self, reqwest::Error> {
        let http = access.client()?;
        let ours = headers.iter().filter(|header| header.origin == url.origin());
        let values: Vec<&str> = ours.clone().map(|header| header.value.reveal()).collect();
        let name = match before {
            0 => url.origin().to_owned(),
            _ => format!("{}#{}", url.origin(), before + 1),
        };
        let secrets = Secrets::of(url.reveal()).and(&values).and(&basic_authentication(&http, url));
        let proxy = access.proxy.as_ref().map(|proxy| basic_authentication(&http, proxy)).unwrap_or_default();
        Ok(Self {
            name: Arc::from(name),
            url: url.reveal().clone(),
            headers: ours.filter_map(written).collect(),
            endpoint: Arc::from(url.origin()),
            secrets: secrets.and(&proxy),
            next_id: AtomicU64::new(1),
            http: ArcSwap::from_pointee(http),
            renewed_micros: AtomicU64::new(0),
            rate: access
                .calls_per_second
                .map(|rate| RateLimiter::direct_with_clock(Quota::per_second(rate), MonotonicClock)),
            access,
        })
    }

    /// Leaves all connections. Behind them is a back end that lags, or nobody any more: the next request may reach another.
    pub(super) fn renew(&self, now_micros: u64) {
        let last = self.renewed_micros.load(Ordering::Relaxed);
        if now_micros.saturating_sub(last) < RENEWAL_PAUSE_MICROS {
            return;
        }
        let won =
            self.renewed_micros.compare_exchange(last, now_micros, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_ok()
            && let Ok(http) = self.access.client()
        {
            self.http.store(Arc::new(http));
        }
    }

    /// Scheme, host and port: the part of the URL that may be shown.
    pub(in crate::chain) const fn endpoint(&self) -> &Arc<str> {
        &self.endpoint
    }

    /// Its endpoint; of several nodes with the same endpoint the later ones are numbered.
    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// A JSON-RPC error as we keep it.
    pub(in crate::chain) fn error(&self, payload: &ErrorPayload) -> ReadError {
        ReadError::Node { code: payload.code, message: self.secrets.strip(&payload.message) }
    }

    /// Sends these calls as one request within the time limit, and counts them.
    pub(super) async fn send(
        &self,
        limit: Duration,
        calls: &[Call],
        clock: &dyn Clock,
        metrics: &Metrics,
    ) -> Result<Vec<NodeAnswer>, ReadError> {
        let limited = within(limit, async {
            self.await_rate(calls.len()).await;
            let Some(first) = calls.first() else { return Ok(Vec::new()) };
            for call in calls {
                metrics.rpc_calls.with_label_values(&[call.method]).inc();
            }
            let begun = clock.monotonic_micros();
            let answers = self.ask(calls).await;
            let micros = clock.monotonic_micros().saturating_sub(begun);
            metrics.rpc_duration.with_label_values(&[first.method]).observe(micros as f64 / 1e6);
            answers
        });
        limited.await.unwrap_or(Err(ReadError::TimedOut(limit.as_millis())))
    }

    /// Waits until so many calls are within `chain.calls_per_second`.
    async fn await_rate(&self, calls: usize) {
        let Some(rate) = &self.rate else { return };
        for _ in 0..calls {
            while let Err(early) = rate.check() {
                tokio::time::sleep(early.wait_time_from(MonotonicClock.now())).await;
            }
        }
    }

    async fn ask(&self, calls: &[Call]) -> Result<Vec<NodeAnswer>, ReadError> {
        let first = self.next_id.fetch_add(calls.len() as u64, Ordering::Relaxed);
        let id_of = |index: usize| Id::Number(first + index as u64);
        let write =
            |(index, call): (usize, &Call)| Written::new(call.method, id_of(index), call.params.clone());
        let mut written: Vec<_> = calls.iter().enumerate().map(write).collect();
        let is_batch = calls.len() > 1;
        let request = match written.pop() {
            Some(single) if !is_batch => serde_json::to_vec(&single),
            last => {
                written.extend(last);
                serde_json::to_vec(&written)
            }
        };
        let request = request.map_err(|_| ReadError::Unintelligible("the call could not be written"))?;
        let post =
            self.http.load().post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(request);
        let answer = post.headers(self.headers.clone()).send().await.map_err(|error| self.broken(&error))?;
        let status = answer.status();
        let pause = retry_after(answer.headers());
        if status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::SERVICE_UNAVAILABLE && pause.is_some())
        {
            return Err(ReadError::RateLimited(pause));
        }
        let has_logs = calls.iter().any(|call| call.method == "eth_getLogs");
        let body = self.body(answer, if has_logs { LOGS_BYTES_MAX } else { ANSWER_BYTES_MAX }).await?;
        let whole: Vec<Response> = match responses(&body) {
            Ok(responses) => responses,
            Err(_) if !status.is_success() => return Err(ReadError::HttpStatus(status.as_u16())),
            Err(_) => return Err(ReadError::Unintelligible("it is not JSON-RPC")),
        };
        let mut answers: Vec<Option<NodeAnswer>> = calls.iter().map(|_| None).collect();
        for response in whole {
            let place = (0..calls.len()).find(|index| response.id == id_of(*index));
            let payload = match response.payload {
                ResponsePayload::Failure(error) if is_rate_limit(&error, has_logs) => {
                    return Err(ReadError::RateLimited(asked_pause(&error)));
                }
                // A node that could not read the ids, or takes no batches, reports its error without one.
                ResponsePayload::Failure(error) if response.id.is_none() => return Err(self.error(&error)),
                ResponsePayload::Failure(error) => Err(error),
                ResponsePayload::Success(_) if !status.is_success() => {
                    return Err(ReadError::HttpStatus(status.as_u16()));
                }
                ResponsePayload::Success(result) => Ok(result),
            };
            let answer = place.and_then(|place| answers.get_mut(place));
            *answer.ok_or(ReadError::Unintelligible("it belongs to another call"))? = Some(payload);
        }
        let answers: Option<Vec<NodeAnswer>> = answers.into_iter().collect();
        answers.ok_or(ReadError::Unintelligible("it does not answer every call"))
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

/// A response, or those of a batch.
fn responses(body: &[u8]) -> serde_json::Result<Vec<Response>> {
    if body.trim_ascii_start().starts_with(b"[") {
        serde_json::from_slice(body)
    } else {
        serde_json::from_slice(body).map(|response| vec![response])
    }
}

/// Where logs are asked for, "limit exceeded" is about the number of logs.
fn is_rate_limit(error: &ErrorPayload, has_logs: bool) -> bool {
    RATE_LIMIT_CODES.contains(&error.code) && !(has_logs && error.code == LIMIT_EXCEEDED_CODE)
}

/// For how long an error asks to be left alone, as some providers write it.
fn asked_pause(error: &ErrorPayload) -> Option<Duration> {
    let data: Value = serde_json::from_str(error.data.as_ref()?.get()).ok()?;
    let secs = data.pointer("/rate/backoff_seconds")?.as_f64()?;
    Duration::try_from_secs_f64(secs).ok()
}

/// For how long the node wants to be left alone; a date counts as not said.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let secs = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(secs))
}
