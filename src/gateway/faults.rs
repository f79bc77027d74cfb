//! What went wrong on the way to an upstream and back, as causes of the error table.

use std::time::Duration;

use pingora::{Error, ErrorSource, ErrorType};

use crate::gateway::site::Site;
use crate::wire::errors::ErrorCause;

/// How long one read may wait while a request's body arrives.
pub(super) const BODY_READ_TIME_MAX: Duration = Duration::from_secs(30);

/// How long an unread rest of a body is waited for before the connection is given up.
pub(super) const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// How long an upload over HTTP/2 may take where the tenant has no limit.
const TRANSFER_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Marks of our own among the library's errors.
const OVERDUE: ErrorType = ErrorType::Custom("overdue");
const UPLOAD_TOO_LARGE: ErrorType = ErrorType::Custom("upload too large");
const STALLED_UPLOAD: ErrorType = ErrorType::Custom("the client stopped sending its body");
const NO_UPSTREAM: ErrorType = ErrorType::Custom("no upstream has an address");

/// The request took longer than its tenant allows.
pub(super) fn overdue() -> Box<Error> {
    Error::new(OVERDUE)
}

/// The body is longer than the tenant takes.
pub(super) fn upload_too_large() -> Box<Error> {
    Error::new(UPLOAD_TOO_LARGE)
}

/// There is no upstream to try.
pub(super) fn no_upstream() -> Box<Error> {
    Error::new(NO_UPSTREAM)
}

/// An upstream switched to another protocol where nobody had asked for it.
pub(super) fn unasked_switch() -> Box<Error> {
    Error::explain(ErrorType::InvalidHTTPHeader, "a switch of protocols that was not asked for").into_up()
}

/// The client stopped in the middle of its body.
pub(super) fn stalled_upload() -> Box<Error> {
    Error::explain(STALLED_UPLOAD, "the client stopped in the middle of its body").into_down()
}

/// Whether an upstream said nothing for too long.
pub(super) fn is_silence(error: &Error) -> bool {
    is_upstreams(error) && *error.etype() == ErrorType::ReadTimedout
}

/// How long a request with a body may wait for its answer over HTTP/2, where the library counts from the head on and not
/// from the last byte that was sent.
pub(super) fn longest_transfer(site: &Site) -> Duration {
    site.tenant.proxy.timeouts.total.unwrap_or(TRANSFER_TIME_MAX)
}

/// Whether an upstream is to blame.
pub(super) fn is_upstreams(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
}

/// What a client is told; nothing when it is gone. `bytes_max` is the longest body that its tenant takes.
pub(super) fn cause_of(error: &Error, bytes_max: Option<u64>) -> Option<ErrorCause> {
    let kind = error.etype();
    if *kind == OVERDUE {
        return Some(ErrorCause::UpstreamTimeout);
    }
    if *kind == UPLOAD_TOO_LARGE {
        return Some(ErrorCause::UploadTooLarge { bytes_max: bytes_max.unwrap_or_default() });
    }
    if *kind == STALLED_UPLOAD {
        return Some(ErrorCause::TooSlow);
    }
    if *kind == NO_UPSTREAM {
        return Some(ErrorCause::Upstream);
    }
    match error.esource() {
        ErrorSource::Upstream if is_timeout(kind) => Some(ErrorCause::UpstreamTimeout),
        ErrorSource::Upstream => Some(ErrorCause::Upstream),
        ErrorSource::Downstream if is_timeout(kind) => Some(ErrorCause::TooSlow),
        ErrorSource::Downstream if is_gone(kind) => None,
        ErrorSource::Downstream => Some(ErrorCause::Malformed { problem: "it can't be read or forwarded" }),
        ErrorSource::Internal | ErrorSource::Unset => Some(ErrorCause::Internal),
    }
}

fn is_timeout(kind: &ErrorType) -> bool {
    [
        ErrorType::ConnectTimedout,
        ErrorType::TLSHandshakeTimedout,
        ErrorType::ReadTimedout,
        ErrorType::WriteTimedout,
    ]
    .contains(kind)
}

fn is_gone(kind: &ErrorType) -> bool {
    [ErrorType::WriteError, ErrorType::ReadError, ErrorType::ConnectionClosed, ErrorType::H2Error]
        .contains(kind)
}

#[cfg(test)]
mod tests {
    use pingora::{Error, ErrorSource, ErrorType};

    use super::cause_of;

    fn status(kind: ErrorType, source: ErrorSource) -> Option<u16> {
        let mut error = Error::new(kind);
        error.esource = source;
        cause_of(&error, Some(1)).map(|cause| cause.answer(0).1.status().as_u16())
    }

    #[test]
    fn a_client_that_is_gone_is_told_nothing_and_a_slow_one_408() {
        assert_eq!(status(ErrorType::ConnectionClosed, ErrorSource::Downstream), None);
        assert_eq!(status(ErrorType::ReadTimedout, ErrorSource::Downstream), Some(408));
        assert_eq!(status(ErrorType::InvalidHTTPHeader, ErrorSource::Downstream), Some(400));
    }

    #[test]
    fn what_has_no_name_is_500() {
        assert_eq!(status(ErrorType::InternalError, ErrorSource::Unset), Some(500));
    }
}
