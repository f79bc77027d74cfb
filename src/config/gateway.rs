//! `[gateway]`: how requests are forwarded.

use crate::config::choice::choice;
use crate::config::reader::Reader;

/// How requests are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewaySettings {
    /// The way out of HTTP/1 requests to upstreams in the clear.
    pub http1: Http1,
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
        Some(Self { http1: reader.text("gateway.http1", "relay", choice(&words))? })
    }
}
