//! What can go wrong between us and a registry, in words that hold no secret: whatever a node or a library said has been
//! through `redact`.

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
    /// An answer without end, or nearly.
    #[error("the node's answer is longer than {0} bytes")]
    TooLong(usize),
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
            Self::TooLong(_) => "too_long",
            Self::Unintelligible(_) => "unintelligible",
            Self::Node { .. } => "node_error",
            Self::Reverted(_) => "reverted",
            Self::Undecodable(_) => "undecodable",
            Self::NoCode(_) => "no_code",
        }
    }
}
