//! Errors of the HTTP library, as failures of the gateway.

use std::{error::Error as Cause, io, iter::successors, sync::Arc, time::Duration};

use pingora::{Error, ErrorSource, ErrorType};

use crate::gateway::failure::{Failure, is_out_of_descriptors};
use crate::gateway::{context::Context, site::Site};
use crate::{domain::Decision, http1::Problem};

/// How long an unread rest of a body is waited for before the connection is given up.
pub(super) const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// How long an upload over HTTP/2 may take where the tenant has no limit.
pub(super) const TRANSFER_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The failures that have errors of their own among the library's.
const OURS: [(ErrorType, Failure); 6] = [
    (ErrorType::Custom("overdue"), Failure::Overdue),
    (ErrorType::Custom("upload too large"), Failure::TooLarge),
    (ErrorType::Custom("another body than the signed one"), Failure::OtherBody),
    (ErrorType::Custom("the client stopped sending its body"), Failure::ClientSlow),
    (ErrorType::Custom("no upstream has an address"), Failure::NoUpstream),
    (ErrorType::Custom("no room"), Failure::Overloaded),
];

/// A failure as an error of the library's. One without an error of ours is a fault of ours.
pub(super) fn error_of(failure: Failure) -> Box<Error> {
    let ours = OURS.into_iter().find(|(_, known)| *known == failure);
    let error = Error::new(ours.map_or(ErrorType::InternalError, |(kind, _)| kind));
    if matches!(failure, Failure::ClientSlow | Failure::OtherBody) { error.into_down() } else { error }
}

/// The tenant of a request that may go upstream, and the tenant's rule for it. Without the proof nothing does.
pub(super) fn forwarded(ctx: &Context) -> Result<(&Arc<Site>, Decision), Box<Error>> {
    ctx.forwarded().ok_or_else(|| error_of(Failure::Internal))
}

/// True if a connection could not be made for lack of descriptors or ports of ours.
pub(in crate::gateway) fn is_without_descriptors(error: &Error) -> bool {
    let first: &(dyn Cause + 'static) = error.root_cause();
    let mut causes = successors(Some(first), |&cause| cause.source());
    causes.any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_out_of_descriptors))
}

/// The head of an upstream's answer may be read in more than one way.
pub(super) fn invalid_answer(problem: Problem) -> Box<Error> {
    Error::new(ErrorType::Custom(problem)).into_up()
}

/// True if an upstream said nothing for too long.
pub(super) fn is_silence(error: &Error) -> bool {
    is_upstreams(error) && *error.etype() == ErrorType::ReadTimedout
}

/// True if an upstream is to blame.
pub(super) fn is_upstreams(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
}

/// The failure that an error of the library's is.
pub(super) fn failure_of(error: &Error) -> Failure {
    use ErrorType::{
        ConnectTimedout, ConnectionClosed, H2Error, ReadError, ReadTimedout, TLSHandshakeTimedout,
        WriteError, WriteTimedout,
    };
    let kind = error.etype();
    if let Some((_, failure)) = OURS.into_iter().find(|(known, _)| known == kind) {
        return failure;
    }
    let is_late = matches!(kind, ConnectTimedout | TLSHandshakeTimedout | ReadTimedout | WriteTimedout);
    // A part of the answer may have gone where a write took too long.
    let is_gone = matches!(kind, WriteTimedout | WriteError | ReadError | ConnectionClosed | H2Error);
    match error.esource() {
        ErrorSource::Upstream if is_late => Failure::UpstreamSlow("timeout"),
        ErrorSource::Upstream => Failure::Upstream("fault"),
        ErrorSource::Downstream if *kind == ReadTimedout => Failure::ClientSlow,
        ErrorSource::Downstream if is_gone => Failure::ClientGone,
        ErrorSource::Downstream => Failure::Malformed,
        ErrorSource::Internal | ErrorSource::Unset => Failure::Internal,
    }
}

#[cfg(test)]
mod tests {
    use pingora::{Error, ErrorSource, ErrorType};

    use super::failure_of;

    fn status(kind: ErrorType, source: ErrorSource) -> Option<u16> {
        let mut error = Error::new(kind);
        error.esource = source;
        failure_of(&error).cause(Some(1)).map(|cause| cause.answer(0).1.status().as_u16())
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
