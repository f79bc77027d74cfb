//! The terms of traces, whether they are built in or not.

/// The end of a request.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The method, as it came.
    pub method: &'a [u8],
    /// The route as configured, or the endpoint.
    pub route: Option<&'a str>,
    /// The status of the answer; 0: there was none.
    pub status: u16,
    /// The `errorType` of an answer of ours.
    pub error_type: Option<&'a str>,
    /// True if the answer broke off.
    pub is_broken: bool,
}
