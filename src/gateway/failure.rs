//! The ways in which a forwarded request fails, and what its client is told.

use crate::wire::errors::ErrorCause;

/// The reason why a request that was let through got no whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The client is gone.
    ClientGone,
    /// The client stopped in the middle of its body.
    ClientSlow,
    /// The client's body can't be read.
    Malformed,
    /// The body is longer than the tenant takes.
    TooLarge,
    /// The request took longer than its tenant allows.
    Overdue,
    /// There is no upstream to try.
    NoUpstream,
    /// An upstream is to blame. The kind is for the log.
    Upstream(&'static str),
    /// An upstream took too long.
    UpstreamSlow(&'static str),
    /// The fault is ours.
    Internal,
}

impl Failure {
    /// The kind of fault for the log, if the upstream that was tried is to blame.
    pub(super) const fn of_upstream(self) -> Option<&'static str> {
        match self {
            Self::Upstream(kind) | Self::UpstreamSlow(kind) => Some(kind),
            Self::ClientGone
            | Self::ClientSlow
            | Self::Malformed
            | Self::TooLarge
            | Self::Overdue
            | Self::NoUpstream
            | Self::Internal => None,
        }
    }

    /// The row of the error table; `None` when the client is gone. `bytes_max` is the longest body that its tenant takes.
    pub(super) fn cause(self, bytes_max: Option<u64>) -> Option<ErrorCause> {
        match self {
            Self::ClientGone => None,
            Self::ClientSlow => Some(ErrorCause::TooSlow),
            Self::Malformed => Some(ErrorCause::Malformed { problem: "it can't be read or forwarded" }),
            Self::TooLarge => Some(ErrorCause::UploadTooLarge { bytes_max: bytes_max.unwrap_or_default() }),
            Self::NoUpstream | Self::Upstream(_) => Some(ErrorCause::Upstream),
            Self::Overdue | Self::UpstreamSlow(_) => Some(ErrorCause::UpstreamTimeout),
            Self::Internal => Some(ErrorCause::Internal),
        }
    }
}
