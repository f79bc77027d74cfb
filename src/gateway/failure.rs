//! The ways in which a forwarded request fails, and what its client is told.

use std::io;

use rustix::io::Errno;

use crate::domain::{Denial, MessageRefusal};
use crate::{error::Error, record::Ending};

/// The reason why a request that was let through got no whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    ClientGone,
    /// The client stopped in the middle of its body.
    ClientSlow,
    /// The client's body can't be read.
    Malformed,
    /// The body is longer than the tenant takes.
    TooLarge,
    /// The body is another than the one whose digest was signed.
    OtherBody,
    /// The request took longer than its tenant allows.
    Overdue,
    /// There is no upstream to try.
    NoUpstream,
    /// An upstream is to blame. The kind is for the log.
    Upstream(&'static str),
    /// An upstream took too long.
    UpstreamSlow(&'static str),
    /// The gateway is at one of its limits.
    Overloaded,
    /// The fault is ours.
    Internal,
}

impl Failure {
    /// The kind of fault for the log, if the upstream that was tried is to blame.
    pub(super) const fn upstream_kind(self) -> Option<&'static str> {
        if let Self::Upstream(kind) | Self::UpstreamSlow(kind) = self { Some(kind) } else { None }
    }

    /// The reason why we close a WebSocket, for the log.
    pub(super) fn end_of_socket(self) -> Option<&'static str> {
        let is_idle = matches!(self, Self::ClientSlow | Self::UpstreamSlow(_));
        let is_cut = matches!(self, Self::Upstream(_));
        let others = (self == Self::Overdue).then_some("overdue").or(is_cut.then_some("upstream"));
        is_idle.then_some("idle").or(others)
    }

    /// The end of a request whose answer breaks off by it.
    pub(super) const fn ending(self) -> Ending {
        let is_clients =
            matches!(self, Self::ClientGone | Self::ClientSlow | Self::Malformed | Self::OtherBody);
        if is_clients { Ending::ClientLeft } else { Ending::Failed }
    }

    /// The row of the error table; `None` when the client is gone. `bytes_max` is the longest body that its tenant takes.
    pub(super) fn cause(self, bytes_max: Option<u64>) -> Option<Error> {
        match self {
            Self::ClientGone => None,
            Self::ClientSlow => Some(Error::TooSlow),
            Self::Malformed => Some(Error::Malformed { problem: "it can't be read or forwarded" }),
            Self::TooLarge => Some(Error::UploadTooLarge { bytes_max: bytes_max.unwrap_or_default() }),
            Self::OtherBody => {
                let denial = Denial::of_message(None, MessageRefusal::BadContentDigest);
                Some(Error::Denied(denial))
            }
            Self::NoUpstream | Self::Upstream(_) => Some(Error::Upstream),
            Self::Overdue | Self::UpstreamSlow(_) => Some(Error::UpstreamTimeout),
            Self::Overloaded => Some(Error::Overloaded),
            Self::Internal => Some(Error::Internal),
        }
    }
}

/// True if a connection could not be made because this process or machine has no descriptor or port left: no upstream is to
/// blame for that.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL].contains(&errno))
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use rustix::io::Errno;

    use super::is_out_of_descriptors;

    // threat: All connections or descriptors taken
    #[test]
    fn only_what_this_machine_lacks_is_no_fault_of_an_upstream() {
        assert!(is_out_of_descriptors(&Errno::MFILE.into()) && is_out_of_descriptors(&Errno::NFILE.into()));
        assert!(is_out_of_descriptors(&Errno::ADDRNOTAVAIL.into()));
        for upstreams in
            [Errno::CONNREFUSED.into(), Errno::HOSTUNREACH.into(), Error::from(ErrorKind::TimedOut)]
        {
            assert!(!is_out_of_descriptors(&upstreams), "{upstreams}");
        }
    }
}
