//! One JSON-RPC request, or batch, over HTTP to one node. Answers are bounded, and no secret of the URL gets out.
//!
//! Knows no method and no contract. A JSON-RPC error is an answer here, whatever its HTTP status is, unless it limits our
//! rate; the caller judges it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{num::NonZeroU32, sync::Arc, time::Duration};

use alloy::rpc::json_rpc::{ErrorPayload, Id, Request};
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::sleep;
use url::Url;

use crate::chain::pool::{IDLE_MAX, Input, has_logs, method_of};
use crate::chain::{fault::ReadError, redact::Secrets};
use crate::domain::{PoolSettings, Quota, RpcHeader, RpcUrl, Secret, Verdict, Window};
use crate::fair_timeout::fair_timeout;
use crate::ports::Clock;
use crate::telemetry::Metrics;

/// The longest answer that is read, in bytes. A profile has a few KiB, a large one half of it. With all places taken,
/// answers need 128 MiB at most.
pub(in crate::chain) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The longest answer with logs, in bytes. The follower asks for one at a time.
const LOGS_BYTES_MAX: usize = 8 * ANSWER_BYTES_MAX;

/// Codes that are about the rate of calls whatever the text says.
const RATE_CODES: [i64; 8] = [429, -32_007, -32_009, -32_024, -32_029, -32_055, -32_090, 15];

/// "Limit exceeded" of EIP-1474: the rate, or too many logs.
const LIMIT_EXCEEDED_CODE: i64 = -32_005;

/// Texts about the rate, in lower case: their codes mean other things elsewhere.
const RATE_TEXTS: &str = "rate limit|too many requests|request limit|compute units|credits|over capacity";

/// Texts about more blocks or logs than a provider gives.
const LOGS_TEXTS: &str = "range|results|logs matched|too many blocks|requested blocks|too large|too big";

/// proxyd's "block is out of range".
const OUT_OF_RANGE_CODE: i64 = -32_019;

/// Texts about a block that the node lacks, of geth and reth, anvil, zksync-era, Monad, Alchemy and others.
const BLOCK_TEXTS: &str = "header not found|header for hash not found|unknown block|block not found|\
    beyond current head|blockoutofrange|t exist yet|requested not found|not processed yet";

const NOT_EVERY_CALL: ReadError = ReadError::Unintelligible("it does not answer every call");

/// A call of a request.
#[derive(Debug, Clone)]
pub(in crate::chain) struct Call {
    pub(in crate::chain) method: &'static str,
    pub(in crate::chain) params: Value,
}

/// The JSON of a result, or the node's error.
pub(in crate::chain) type NodeAnswer = Result<Box<RawValue>, ErrorPayload>;

/// An answer as nodes write it. Of result and error some write the one that there is not as `null`.
#[derive(Deserialize)]
struct Response {
    id: Option<Id>,
    #[serde(default)]
    result: Box<RawValue>,
    error: Option<ErrorPayload>,
}

/// A node's answers to the calls of a request, in their order.
pub(in crate::chain) struct Answers<'a> {
    node: &'a Node,
    answers: std::vec::IntoIter<NodeAnswer>,
    has_logs: bool,
}

impl Answers<'_> {
    /// The next result.
    pub(in crate::chain) fn next<T: DeserializeOwned>(&mut self) -> Result<T, ReadError> {
        let result = self.next_answer()?.map_err(|error| self.error(&error))?;
        serde_json::from_str(result.get())
            .map_err(|_| ReadError::Unintelligible("its result is not what was asked for"))
    }

    /// The next answer, an error of the node included.
    pub(in crate::chain) fn next_answer(&mut self) -> Result<NodeAnswer, ReadError> {
        self.answers.next().ok_or(NOT_EVERY_CALL)
    }

    /// A node's error as we keep it.
    pub(in crate::chain) fn error(&self, payload: &ErrorPayload) -> ReadError {
        self.node.error(payload, self.has_logs)
    }

    pub(in crate::chain) fn endpoint(&self) -> Arc<str> {
        Arc::clone(&self.node.endpoint)
    }
}

/// A node.
pub(super) struct Node {
    /// Keeps connections.
    http: reqwest::Client,
    /// Makes a connection for each request. Behind a kept one may be a back end that lags or is gone.
    http_anew: reqwest::Client,
    /// `chain.calls_per_second`, the line of readers, and the calls of the last second. Both locks are fair.
    rate: Option<(Quota, Mutex<()>, Mutex<Window>)>,
    url: Url,
    /// The provider's headers, marked as sensitive.
    headers: HeaderMap,
    /// Scheme, host and port: the part of the URL that may be shown.
    pub(super) endpoint: Arc<str>,
    /// The endpoint; of several nodes with the same endpoint the later ones are numbered.
    pub(super) name: String,
    secrets: Secrets,
    next_id: AtomicU64,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl Node {
    /// The node at this place of the configured URLs. It gets the headers of its origin.
    pub(super) fn new(
        settings: &PoolSettings,
        headers: &[RpcHeader<Secret>],
        (place, url): (usize, &RpcUrl),
        (clock, metrics): (Arc<dyn Clock>, Metrics),
    ) -> Result<Self, reqwest::Error> {
        // Roots take time to load. Without TLS none are needed.
        let mut urls = [Some(url), settings.proxy.as_ref()].into_iter().flatten();
        let has_tls = urls.any(|url| url.reveal().scheme() == "https");
        let client = |kept: usize| {
            let builder = reqwest::Client::builder();
            let builder = if has_tls { builder } else { builder.tls_certs_only([]) };
            let builder = builder
                .redirect(reqwest::redirect::Policy::none())
                .pool_max_idle_per_host(kept)
                .connect_timeout(settings.request_timeout);
            match &settings.proxy {
                Some(proxy) => builder.proxy(reqwest::Proxy::all(proxy.reveal().clone())?).build(),
                None => builder.no_proxy().build(),
            }
        };
        let http = client(IDLE_MAX)?;
        let ours = headers.iter().filter(|header| header.origin == url.origin());
        let values = ours.clone().map(|header| header.value.reveal().to_owned());
        let authentications = [Some(url), settings.proxy.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|url| basic_authentication(&http, url));
        let secrets = Secrets::of(url.reveal(), values.chain(authentications));
        let before = settings.urls.iter().take(place).filter(|other| other.origin() == url.origin()).count();
        let name = match before {
            0 => url.origin().to_owned(),
            _ => format!("{}#{}", url.origin(), before + 1),
        };
        metrics.rpc_node_healthy.with_label_values(&[&name]).set(1);
        let quota = |calls: NonZeroU32| Quota { limit: calls.get(), window_micros: 1_000_000 };
        let rate = settings.calls_per_second.map(|calls| (quota(calls), Mutex::default(), Mutex::default()));
        Ok(Self {
            http,
            http_anew: client(0)?,
            rate,
            url: url.reveal().clone(),
            headers: ours.filter_map(written).collect(),
            endpoint: Arc::from(url.origin()),
            name,
            secrets,
            next_id: AtomicU64::new(1),
            clock,
            metrics,
        })
    }

    fn error(&self, payload: &ErrorPayload, has_logs: bool) -> ReadError {
        judge(payload, self.secrets.strip(&payload.message), has_logs)
    }

    /// Sends these calls as one request within the time limit, and counts them. `is_again`: after a try that failed.
    pub(super) async fn send(
        &self,
        limit: Duration,
        calls: &[Call],
        is_again: bool,
    ) -> Result<Answers<'_>, ReadError> {
        let limited = fair_timeout(limit, async {
            for call in calls {
                self.metrics.rpc_calls.with_label_values(&[call.method]).inc();
            }
            let begun = self.clock.monotonic_micros();
            let answers = self.ask(calls, if is_again { &self.http_anew } else { &self.http }).await;
            let micros = self.clock.monotonic_micros() - begun;
            let duration = self.metrics.rpc_duration.with_label_values(&[method_of(calls)]);
            duration.observe(micros as f64 / 1e6);
            answers
        });
        let answers = limited.await.unwrap_or(Err(ReadError::Timeout(limit.as_millis())))?;
        Ok(Answers { node: self, answers: answers.into_iter(), has_logs: has_logs(calls) })
    }

    /// Waits until so many calls are within `chain.calls_per_second`: readers in the order in which they came, the follower
    /// before them, and an eighth is its alone. Given up before, it costs no call, unless there are more than fit into a second.
    pub(super) async fn await_turn(&self, calls: usize, input: Input) {
        let Some((quota, line, window)) = &self.rate else { return };
        let (_first, reserved) = match input {
            Input::Follower => (None, 0),
            Input::Ours | Input::Group | Input::Strangers => (Some(line.lock().await), quota.limit / 8),
        };
        let now = || self.clock.monotonic_micros();
        let mut recent = window.lock().await;
        for further in (0..calls as u32).rev() {
            // Room for all of them, so that none is counted before.
            let room = Quota { limit: quota.limit.saturating_sub(further + reserved).max(1), ..*quota };
            while let Verdict::Limited { retry_after_micros } = recent.admit(room, now()) {
                // Nobody goes before the follower.
                let held = (input == Input::Follower).then_some(recent);
                sleep(Duration::from_micros(retry_after_micros)).await;
                recent = if let Some(held) = held { held } else { window.lock().await };
            }
        }
    }

    async fn ask(&self, calls: &[Call], http: &reqwest::Client) -> Result<Vec<NodeAnswer>, ReadError> {
        let first = self.next_id.fetch_add(calls.len() as u64, Ordering::Relaxed);
        let id_of = |index: usize| Id::Number(first + index as u64);
        let requests: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(index, call)| Request::new(call.method, id_of(index), &call.params))
            .collect();
        let written = match requests.as_slice() {
            [single] => serde_json::to_vec(single),
            batch => serde_json::to_vec(batch),
        };
        let written = written.map_err(|_| ReadError::Unintelligible("the call could not be written"))?;
        let post = http.post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(written);
        let answer = post.headers(self.headers.clone()).send().await.map_err(|error| self.broken(&error))?;
        let (status, pause) = (answer.status(), retry_after(answer.headers()));
        if status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::SERVICE_UNAVAILABLE && pause.is_some())
        {
            return Err(ReadError::RateLimited(pause));
        }
        let has_logs = has_logs(calls);
        let body = self.body(answer, if has_logs { LOGS_BYTES_MAX } else { ANSWER_BYTES_MAX }).await?;
        let refused = || ReadError::HttpStatus(status.as_u16());
        let single = |_| serde_json::from_slice(&body).map(|response| vec![response]);
        let responses: Vec<Response> = match serde_json::from_slice(&body).or_else(single) {
            Ok(responses) => responses,
            Err(_) if status.is_success() => return Err(ReadError::Unintelligible("it is not JSON-RPC")),
            Err(_) => return Err(refused()),
        };
        let mut answers: Vec<Option<NodeAnswer>> = calls.iter().map(|_| None).collect();
        for response in responses {
            let place = (0..calls.len()).find(|index| response.id == Some(id_of(*index)));
            let answer = match response.error {
                Some(error) => {
                    let refusal = self.error(&error, has_logs);
                    // A node that could not read the ids, or takes no batches, reports its error without one.
                    if response.id.is_none() || matches!(refusal, ReadError::RateLimited(_)) {
                        return Err(refusal);
                    }
                    Err(error)
                }
                None if !status.is_success() => return Err(refused()),
                None => Ok(response.result),
            };
            let slot = place.and_then(|place| answers.get_mut(place));
            *slot.ok_or(ReadError::Unintelligible("it belongs to another call"))? = Some(answer);
        }
        answers.into_iter().collect::<Option<_>>().ok_or(NOT_EVERY_CALL)
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
        let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
        let text = causes.last().map_or_else(|| "no further cause is known".to_owned(), ToString::to_string);
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

/// The header that user info in the URL is sent as: a node may quote that, too.
fn basic_authentication(http: &reqwest::Client, url: &RpcUrl) -> Option<String> {
    let request = http.post(url.reveal().clone()).build().ok()?;
    request.headers().get(AUTHORIZATION)?.to_str().ok().map(str::to_owned)
}

/// Classifies an error. Codes mean many things: texts about reverts, blocks and logs count before those about the rate.
fn judge(payload: &ErrorPayload, message: String, has_logs: bool) -> ReadError {
    let (code, text) = (payload.code, payload.message.to_lowercase());
    let says = |texts: &str| texts.split('|').any(|part| text.contains(part));
    // Anybody may have written what a contract reverts with.
    let is_the_nodes = !says("revert");
    let is_of_rate =
        RATE_CODES.contains(&code) || says(RATE_TEXTS) || (code == LIMIT_EXCEEDED_CODE && !has_logs);
    if is_the_nodes && (code == OUT_OF_RANGE_CODE || says(BLOCK_TEXTS)) {
        ReadError::NoBlock { code, message }
    } else if is_the_nodes && is_of_rate && !(has_logs && says(LOGS_TEXTS)) {
        ReadError::RateLimited(asked_pause(payload))
    } else {
        ReadError::NodeError { code, message }
    }
}

/// For how long an error asks to be left alone, as some providers write it.
fn asked_pause(error: &ErrorPayload) -> Option<Duration> {
    let data: Value = serde_json::from_str(error.data.as_ref()?.get()).ok()?;
    Duration::try_from_secs_f64(data.pointer("/rate/backoff_seconds")?.as_f64()?).ok()
}

/// For how long the node wants to be left alone; a date counts as not said.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let secs = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(secs))
}

#[cfg(test)]
mod tests;
