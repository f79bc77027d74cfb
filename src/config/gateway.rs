//! `[gateway]`: how requests are forwarded.

use crate::config::choice::name;
use crate::config::reader::Reader;

/// How requests are forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaySettings {
    /// How many requests may be under way; nothing: as many as there are file descriptors for.
    pub in_flight_max: Option<u32>,
    /// The name in `Via` that all replicas share; nothing: each process has its own.
    pub via: Option<Box<str>>,
}

impl GatewaySettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let max = reader.integer("gateway.max_in_flight", 0, &(0..=1_000_000));
        read_all!(Self {
            in_flight_max: max.map(|max: u32| (max > 0).then_some(max)),
            via: Some(reader.optional_text("gateway.via", name)),
        })
    }
}
