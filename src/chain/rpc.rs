//! The nodes: time limit per try, bounded concurrency, the next node when one fails.
//!
//! A revert is an answer; everything else that is not a result is a reason to try the next node.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, Bytes, U64};
use alloy::rpc::json_rpc::{ErrorPayload, RpcSend};
use alloy::rpc::types::TransactionRequest;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::chain::fault::ReadError;
use crate::chain::transport::{Node, NodeAnswer};
use crate::domain::rpc_url::RpcUrl;
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// Calls under way at once, over all nodes.
const CALLS_UNDER_WAY_MAX: usize = 256;

/// The code by which nodes report a revert.
const REVERT_CODE: i64 = 3;

/// JSON-RPC nodes in the order in which they are tried.
pub struct RpcPool {
    nodes: Vec<Node>,
    under_way: Semaphore,
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

/// What a contract call came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Returned(Bytes),
    Reverted(Bytes),
}

/// An answer, and which node gave it to which method.
pub(super) struct Answered<'a, T> {
    answer: T,
    pool: &'a RpcPool,
    node: &'a Node,
    method: &'static str,
}

impl<T> Answered<'_, T> {
    /// Makes something of the answer; where that fails, the fault names the node that gave it.
    pub(super) fn read<U>(self, make: impl FnOnce(T) -> Result<U, ReadError>) -> Result<U, ChainFault> {
        make(self.answer).map_err(|error| self.pool.fault(self.node.endpoint(), self.method, error))
    }
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
            .no_proxy()
            .build()?;
        let nodes = urls.iter().map(|url| Node::new(url, http.clone())).collect();
        let under_way = Semaphore::new(CALLS_UNDER_WAY_MAX);
        Ok(Self { nodes, under_way, request_timeout, clock, metrics })
    }

    /// `eth_call` at the latest block.
    pub(super) async fn call(
        &self,
        to: Address,
        data: Vec<u8>,
    ) -> Result<Answered<'_, CallOutcome>, ChainFault> {
        let request = TransactionRequest::default().to(to).input(Bytes::from(data).into());
        self.first_answer("eth_call", (request, "latest"), |node, answer| match answer {
            Ok(result) => read_json(result.get()).map(CallOutcome::Returned),
            Err(error) => revert_data(&error).map(CallOutcome::Reverted).ok_or_else(|| node.error(&error)),
        })
        .await
    }

    /// `eth_getCode` at the latest block.
    pub(super) async fn code(&self, address: Address) -> Result<Answered<'_, Bytes>, ChainFault> {
        self.first_answer("eth_getCode", (address, "latest"), result).await
    }

    /// `eth_blockNumber`.
    pub(super) async fn block_number(&self) -> Result<Answered<'_, U64>, ChainFault> {
        self.first_answer("eth_blockNumber", (), result).await
    }

    fn fault(&self, endpoint: &Arc<str>, method: &'static str, error: ReadError) -> ChainFault {
        self.metrics.rpc_errors.with_label_values(&[method, error.kind()]).inc();
        ChainFault { endpoint: Arc::clone(endpoint), method, cause: Arc::new(error) }
    }

    /// The first node's answer that `understand` takes for one.
    async fn first_answer<T>(
        &self,
        method: &'static str,
        params: impl RpcSend,
        understand: impl Fn(&Node, NodeAnswer) -> Result<T, ReadError>,
    ) -> Result<Answered<'_, T>, ChainFault> {
        // A place is no matter of one node: whoever finds none in time is told so, and not sent to the next node.
        let place = tokio::time::timeout(self.request_timeout, self.under_way.acquire()).await;
        let Ok(Ok(_place)) = place else {
            return Err(self.fault(&self.first_endpoint(), method, ReadError::Busy));
        };
        let mut last = None;
        for node in &self.nodes {
            let answer = self.ask(node, method, params.clone()).await;
            match answer.and_then(|answer| understand(node, answer)) {
                Ok(answer) => return Ok(Answered { answer, pool: self, node, method }),
                Err(error) => last = Some(self.fault(node.endpoint(), method, error)),
            }
        }
        Err(last.unwrap_or_else(|| self.fault(&self.first_endpoint(), method, ReadError::Busy)))
    }

    /// The fault of a read that was given up after `limit`, whichever node it was at.
    pub(super) fn out_of_time(&self, limit: Duration) -> ChainFault {
        self.fault(&self.first_endpoint(), "eth_call", ReadError::TimedOut(limit.as_millis()))
    }

    /// Stands for the chain where no single node is to blame.
    fn first_endpoint(&self) -> Arc<str> {
        self.nodes.first().map_or_else(|| Arc::from("none"), |node| Arc::clone(node.endpoint()))
    }

    async fn ask(
        &self,
        node: &Node,
        method: &'static str,
        params: impl RpcSend,
    ) -> Result<NodeAnswer, ReadError> {
        let limited = tokio::time::timeout(self.request_timeout, async {
            self.metrics.rpc_calls.with_label_values(&[method]).inc();
            let begun = self.clock.monotonic_micros();
            let answer = node.ask(method, params).await;
            let micros = self.clock.monotonic_micros().saturating_sub(begun);
            self.metrics.rpc_duration.with_label_values(&[method]).observe(micros as f64 / 1e6);
            answer
        });
        limited.await.unwrap_or(Err(ReadError::TimedOut(self.request_timeout.as_millis())))
    }
}

fn result<T: DeserializeOwned>(node: &Node, answer: NodeAnswer) -> Result<T, ReadError> {
    read_json(answer.map_err(|error| node.error(&error))?.get())
}

fn read_json<T: DeserializeOwned>(json: &str) -> Result<T, ReadError> {
    serde_json::from_str(json).map_err(|_| ReadError::Unintelligible("its result is not what was asked for"))
}

/// The data of a revert, empty when the node gives none; nothing when the error is no revert. Nodes agree neither on the
/// code nor on the place of the data.
fn revert_data(error: &ErrorPayload) -> Option<Bytes> {
    let is_revert = error.code == REVERT_CODE || error.message.to_ascii_lowercase().contains("revert");
    let data = || error.as_revert_data().or_else(|| error.try_data_as::<Bytes>()?.ok());
    is_revert.then(|| data().unwrap_or_default())
}
