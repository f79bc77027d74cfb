//! The terms of traces, whether they are built in or not.

use std::num::NonZeroU32;

/// The collector of spans, and the share of requests that are traced.
#[derive(Debug)]
pub(crate) struct TracerSettings<'a> {
    /// The collector's URL.
    pub(crate) endpoint: &'a str,
    /// Of requests without a trace one in so many is traced; 0: none.
    pub(crate) one_in: u32,
    /// How many traces of clients are continued a second.
    pub(crate) continued_per_second: NonZeroU32,
}

/// The end of a request.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    /// The method, as it came.
    pub(crate) method: &'a [u8],
    /// The route as configured, or the endpoint.
    pub(crate) route: Option<&'a str>,
    /// The status of the answer; 0: there was none.
    pub(crate) status: u16,
    /// The `errorType` of an answer of ours.
    pub(crate) error_type: Option<&'a str>,
    /// True if the answer broke off.
    pub(crate) is_broken: bool,
}
