//! One JSON-RPC call over HTTP to one node. What a node may make us read is bounded, and nothing of its URL gets out.
//!
//! Knows no method and no contract. An error that the node reports in JSON-RPC is an answer here, whatever its HTTP
//! status is; who called judges it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy::rpc::json_rpc::{ErrorPayload, Id, Request, Response, ResponsePayload, RpcSend};
use http::header::CONTENT_TYPE;
use serde_json::value::RawValue;
use url::Url;

use crate::chain::fault::ReadError;
use crate::chain::redact::Secrets;
use crate::domain::rpc_url::RpcUrl;

/// The longest answer that is read, in bytes. A profile has a few KiB; a hostile node would have no end.
pub(super) const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One node.
pub(super) struct Node {
    http: reqwest::Client,
    url: Url,
    endpoint: Arc<str>,
    secrets: Secrets,
    next_id: AtomicU64,
}

/// What a node answered: the JSON of the result, or its error.
pub(super) type NodeAnswer = Result<Box<RawValue>, ErrorPayload>;

impl Node {
    pub(super) fn new(url: &RpcUrl, http: reqwest::Client) -> Self {
        Self {
            http,
            url: url.reveal().clone(),
            endpoint: Arc::from(url.origin()),
            secrets: Secrets::of(url.reveal()),
            next_id: AtomicU64::new(1),
        }
    }

    /// Scheme, host and port: what may be shown of the node.
    pub(super) const fn endpoint(&self) -> &Arc<str> {
        &self.endpoint
    }

    /// The words for an error that the node reported.
    pub(super) fn error(&self, payload: &ErrorPayload) -> ReadError {
        ReadError::Node { code: payload.code, message: self.secrets.strip(&payload.message) }
    }

    /// Sends one call. Takes as long as the node does: the caller sets the limit.
    pub(super) async fn ask(
        &self,
        method: &'static str,
        params: impl RpcSend,
    ) -> Result<NodeAnswer, ReadError> {
        let id = Id::Number(self.next_id.fetch_add(1, Ordering::Relaxed));
        let request = serde_json::to_vec(&Request::new(method, id.clone(), params));
        let request = request.map_err(|_| ReadError::Unintelligible("the call could not be written"))?;
        let post = self.http.post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(request);
        let answer = post.send().await.map_err(|error| self.broken(&error))?;
        let status = answer.status();
        let body = self.body(answer).await?;
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

    async fn body(&self, mut answer: reqwest::Response) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.broken(&error))? {
            if piece.len() > ANSWER_BYTES_MAX - body.len() {
                return Err(ReadError::TooLong(ANSWER_BYTES_MAX));
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
