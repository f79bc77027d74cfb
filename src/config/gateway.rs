//! `[gateway]`: how requests are forwarded.

use crate::config::choice::name;
use crate::config::written::unless_zero;

settings! {
    /// How requests are forwarded.
    GatewaySettings(reader) {
        /// How many requests may be under way; nothing: as many as there are file descriptors for.
        in_flight_max: Option<u32> =
            reader.integer("gateway.max_in_flight", 0, &(0..=1_000_000)).map(unless_zero),
        /// The name in `Via` that all replicas share; nothing: each process has its own.
        via: Option<Box<str>> = Some(reader.optional_text("gateway.via", name)),
    }
}

settings! {
    /// The tenants and upstreams that are refused.
    #[derive(Copy)]
    GatewayLive(reader) {
        /// True if a start is refused when a tenant can't be served.
        strict_tenants: bool = reader.boolean("gateway.strict_tenants", false),
        /// True if a reload may leave `tenants.d`, or all of it, without tenants.
        allow_empty: bool = reader.boolean("gateway.allow_empty", false),
        /// True if upstreams may be link-local.
        allow_link_local: bool = reader.boolean("gateway.allow_link_local", false),
    }
}
