//! `[gateway]`: how requests are forwarded.

use crate::config::choice::{choice, name};
use crate::config::reader::Reader;

/// How requests are forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaySettings {
    /// The way out of HTTP/1 requests to upstreams in the clear.
    pub http1: Http1,
    /// How many requests may be under way; nothing: as many as there are file descriptors for.
    pub in_flight_max: Option<u32>,
    /// The name in `Via` that all replicas share; nothing: each process has its own.
    pub via: Option<Box<str>>,
}

/// A way out of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http1 {
    /// Our own relay.
    Relay,
    /// The HTTP library, as for every other request.
    Library,
}

impl GatewaySettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let words = [("relay", Http1::Relay), ("library", Http1::Library)];
        let max = reader.integer("gateway.max_in_flight", 0, &(0..=1_000_000));
        read_all!(Self {
            http1: reader.text("gateway.http1", "relay", choice(&words)),
            in_flight_max: max.map(|max: u32| (max > 0).then_some(max)),
            via: Some(reader.optional_text("gateway.via", name)),
        })
    }
}
