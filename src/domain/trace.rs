//! The span of a client that a request belongs to (W3C Trace Context).

/// The span of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteSpan<'a> {
    /// The id of its trace, 32 hex digits.
    pub trace: &'a str,
    /// Its own id, 16 hex digits.
    pub span: &'a str,
    /// True if the client records the trace.
    pub is_sampled: bool,
}
