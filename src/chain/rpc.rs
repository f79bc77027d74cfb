//! The nodes: time limit per try, bounded concurrency, the next node when one fails.
//!
//! A revert is an answer; everything else that is not a result is a reason to try the next node.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, Bytes, U64};
use alloy::rpc::client::RpcClient;
use alloy::rpc::json_rpc::{RpcError, RpcRecv, RpcSend};
use alloy::rpc::types::TransactionRequest;
use alloy::transports::TransportError;
use tokio::sync::Semaphore;

use crate::chain::fault::ReadError;
use crate::domain::rpc_url::RpcUrl;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// Calls under way at once, over all nodes.
const CALLS_UNDER_WAY_MAX: usize = 256;

/// The shortest part of a URL that counts as a secret: `v2` and the like are no keys, and occur in any text.
const SECRET_CHARS_MIN: usize = 6;

/// JSON-RPC nodes in the order in which they are tried.
pub struct RpcPool {
    nodes: Vec<Node>,
    under_way: Semaphore,
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

struct Node {
    client: RpcClient,
    endpoint: Arc<str>,
    secrets: Vec<String>,
}

/// What a contract call came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Returned(Bytes),
    Reverted(Bytes),
}

impl RpcPool {
    /// The pool over these nodes, each try limited to `request_timeout`.
    ///
    /// # Errors
    ///
    /// When no HTTP client can be made, as without a TLS provider.
    pub fn new(
        urls: &[RpcUrl],
        request_timeout: Duration,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(request_timeout)
            .timeout(request_timeout)
            .no_proxy()
            .build()?;
        let nodes = urls.iter().map(|url| Node::new(url, http.clone())).collect();
        let under_way = Semaphore::new(CALLS_UNDER_WAY_MAX);
        Ok(Self { nodes, under_way, request_timeout, clock, metrics })
    }

    /// `eth_call` at the latest block.
    pub(super) async fn call(&self, to: Address, data: Vec<u8>) -> Result<CallOutcome, ChainFault> {
        let request = TransactionRequest::default().to(to).input(Bytes::from(data).into());
        self.first_answer("eth_call", (request, "latest"), |error| match error {
            RpcError::ErrorResp(payload) => payload.as_revert_data().map(CallOutcome::Reverted),
            _ => None,
        })
        .await
        .map(|outcome: Answer<Bytes, CallOutcome>| match outcome {
            Answer::Result(data) => CallOutcome::Returned(data),
            Answer::Error(reverted) => reverted,
        })
    }

    /// `eth_getCode` at the latest block.
    pub(super) async fn code(&self, address: Address) -> Result<Bytes, ChainFault> {
        self.first_result("eth_getCode", (address, "latest")).await
    }

    /// `eth_blockNumber`.
    pub(super) async fn block_number(&self) -> Result<U64, ChainFault> {
        self.first_result("eth_blockNumber", ()).await
    }

    /// A fault that was found in an answer: the first node stands for the chain.
    pub(super) fn fault(&self, method: &'static str, error: ReadError) -> ChainFault {
        self.metrics.rpc_errors.with_label_values(&[method, error.kind()]).inc();
        let endpoint =
            self.nodes.first().map_or_else(|| Arc::from("none"), |node| Arc::clone(&node.endpoint));
        ChainFault { endpoint, method, cause: Arc::new(error) }
    }

    async fn first_result<R: RpcRecv>(
        &self,
        method: &'static str,
        params: impl RpcSend,
    ) -> Result<R, ChainFault> {
        let answer = self.first_answer(method, params, |_| None::<std::convert::Infallible>).await?;
        match answer {
            Answer::Result(result) => Ok(result),
            Answer::Error(never) => match never {},
        }
    }

    /// The first node's answer that is a result, or an error that `understood` takes for an answer.
    async fn first_answer<R: RpcRecv, E>(
        &self,
        method: &'static str,
        params: impl RpcSend,
        understood: impl Fn(&TransportError) -> Option<E>,
    ) -> Result<Answer<R, E>, ChainFault> {
        let mut last = None;
        for node in &self.nodes {
            match self.try_node(node, method, params.clone(), &understood).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    self.metrics.rpc_errors.with_label_values(&[method, error.kind()]).inc();
                    let endpoint = Arc::clone(&node.endpoint);
                    last = Some(ChainFault { endpoint, method, cause: Arc::new(error) });
                }
            }
        }
        Err(last.unwrap_or_else(|| self.fault(method, ReadError::Busy)))
    }

    async fn try_node<R: RpcRecv, E>(
        &self,
        node: &Node,
        method: &'static str,
        params: impl RpcSend,
        understood: impl Fn(&TransportError) -> Option<E>,
    ) -> Result<Answer<R, E>, ReadError> {
        let limited = tokio::time::timeout(self.request_timeout, async {
            let _place = self.under_way.acquire().await.map_err(|_| ReadError::Busy)?;
            self.metrics.rpc_calls.with_label_values(&[method]).inc();
            let begun = self.clock.monotonic_micros();
            let answer = node.client.request::<_, R>(method, params).await;
            let micros = self.clock.monotonic_micros().saturating_sub(begun);
            self.metrics.rpc_duration.with_label_values(&[method]).observe(micros as f64 / 1e6);
            match answer {
                Ok(result) => Ok(Answer::Result(result)),
                Err(error) => match understood(&error) {
                    Some(answer) => Ok(Answer::Error(answer)),
                    None => Err(ReadError::of_transport(&error, &node.secrets)),
                },
            }
        });
        limited.await.unwrap_or(Err(ReadError::TimedOut(self.request_timeout.as_millis())))
    }
}

enum Answer<R, E> {
    Result(R),
    Error(E),
}

impl Node {
    fn new(url: &RpcUrl, http: reqwest::Client) -> Self {
        let revealed = url.reveal();
        let mut secrets: Vec<String> = Vec::new();
        secrets.extend(revealed.password().map(str::to_owned));
        secrets.push(revealed.username().to_owned());
        secrets.extend(revealed.path_segments().into_iter().flatten().map(str::to_owned));
        secrets.extend(revealed.query_pairs().map(|(_, value)| value.into_owned()));
        secrets.retain(|secret| secret.chars().count() >= SECRET_CHARS_MIN);
        Self {
            client: RpcClient::new_http_with_client(http, revealed.clone()),
            endpoint: Arc::from(url.origin()),
            secrets,
        }
    }
}
