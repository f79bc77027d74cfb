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
    /// True if a start is refused when a tenant can't be served.
    pub strict_tenants: bool,
    /// True if a reload may leave `tenants.d`, or all of it, without tenants.
    pub allow_empty: bool,
    /// True if upstreams may be link-local.
    pub allow_link_local: bool,
}

impl GatewaySettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let max = reader.integer("gateway.max_in_flight", 0, &(0..=1_000_000));
        read_all!(Self {
            in_flight_max: max.map(|max: u32| (max > 0).then_some(max)),
            via: Some(reader.optional_text("gateway.via", name)),
            strict_tenants: reader.boolean("gateway.strict_tenants", false),
            allow_empty: reader.boolean("gateway.allow_empty", false),
            allow_link_local: reader.boolean("gateway.allow_link_local", false),
        })
    }

    /// True if a restart is needed for the difference to another. The rules for tenants are read again.
    pub(super) fn waits_for_restart(&self, other: &Self) -> bool {
        let Self { strict_tenants, allow_empty, allow_link_local, .. } = *other;
        *other != Self { strict_tenants, allow_empty, allow_link_local, ..self.clone() }
    }
}
