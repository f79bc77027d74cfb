//! What can go wrong between us and a registry, in words that hold no secret: provider keys stand in URLs, and HTTP
//! libraries and providers like to quote them.

use alloy::rpc::json_rpc::{ErrorPayload, RpcError};
use alloy::transports::{TransportError, TransportErrorKind};

/// The longest text of a node that is kept, in characters.
const NODE_TEXT_CHARS_MAX: usize = 120;

/// Why a registry could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No answer within the time limit.
    #[error("no answer within {0} ms")]
    TimedOut(u128),
    /// Too many calls are under way already.
    #[error("too many calls are under way")]
    Busy,
    /// No connection, or it broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// An HTTP status other than success.
    #[error("the node answered with HTTP status {0}")]
    HttpStatus(u16),
    /// Something that is not JSON-RPC, or not what was asked for.
    #[error("the node's answer can't be understood: {0}")]
    Unintelligible(&'static str),
    /// A JSON-RPC error that is not a revert.
    #[error("the node answered with error {code}: {message}")]
    Node {
        /// The JSON-RPC error code.
        code: i64,
        /// The node's text: cut, printable, without parts of the URL.
        message: String,
    },
    /// A contract call reverted where no revert belongs.
    #[error("{0} reverted")]
    Reverted(&'static str),
    /// A contract call gave something other than its ABI says.
    #[error("the return value of {0} can't be decoded")]
    Undecodable(&'static str),
    /// There is no contract at the configured address.
    #[error("there is no contract at the address configured as {0}")]
    NoCode(&'static str),
}

impl ReadError {
    /// A short name for the metric's label.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TimedOut(_) => "timeout",
            Self::Busy => "busy",
            Self::Connection(_) => "connection",
            Self::HttpStatus(_) => "http_status",
            Self::Unintelligible(_) => "unintelligible",
            Self::Node { .. } => "node_error",
            Self::Reverted(_) => "reverted",
            Self::Undecodable(_) => "undecodable",
            Self::NoCode(_) => "no_code",
        }
    }

    /// The words for a failed call, with every secret taken out.
    pub(super) fn of_transport(error: &TransportError, secrets: &[String]) -> Self {
        match error {
            RpcError::ErrorResp(payload) => Self::of_payload(payload, secrets),
            RpcError::NullResp => Self::Unintelligible("it is null"),
            RpcError::DeserError { .. } => Self::Unintelligible("it is not the JSON that was asked for"),
            RpcError::SerError(_) | RpcError::LocalUsageError(_) | RpcError::UnsupportedFeature(_) => {
                Self::Unintelligible("the call could not be made")
            }
            RpcError::Transport(kind) => Self::of_kind(kind),
        }
    }

    fn of_payload(payload: &ErrorPayload, secrets: &[String]) -> Self {
        let mut message: String = payload.message.chars().take(4 * NODE_TEXT_CHARS_MAX).collect();
        for secret in secrets {
            message = message.replace(secret.as_str(), "…");
        }
        let message = message.chars().take(NODE_TEXT_CHARS_MAX).flat_map(char::escape_debug).collect();
        Self::Node { code: payload.code, message }
    }

    fn of_kind(kind: &TransportErrorKind) -> Self {
        if let Some(http) = kind.as_http_error() {
            return Self::HttpStatus(http.status);
        }
        match kind.as_custom().and_then(|custom| custom.downcast_ref::<reqwest::Error>()) {
            Some(error) => Self::Connection(innermost(error)),
            None => Self::Unintelligible("it belongs to no call"),
        }
    }
}

/// The innermost cause alone: the outer ones quote the URL.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause = std::error::Error::source(error);
    let mut text = "no further cause is known".to_owned();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text.chars().take(NODE_TEXT_CHARS_MAX).collect()
}
