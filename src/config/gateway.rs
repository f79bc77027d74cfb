//! `[gateway]`: how requests are forwarded.

use crate::config::written::{name, unless_zero};

settings! {
    /// How requests are forwarded.
    GatewaySettings(reader) {
        /// How many requests may be under way at once, of all tenants together, up to 1000000; 0 = as many as the process has room for.
        in_flight_max: Option<u32> =
            reader.integer("gateway.max_in_flight", 0, &(0..=1_000_000)).map(unless_zero),
        /// Optional. The name of this deployment in the header Via: 1 to 64 characters of A-Z, a-z, 0-9, -, _ and . A request that has
        /// passed a gateway of this name is refused (508). Give replicas one name, and another to each deployment in front of or
        /// behind this one. Without it each process has a name of its own.
        /// Example: "edge"
        via: Option<Box<str>> = Some(reader.text("gateway.via", None, name)),
    }
}

settings! {
    /// The tenants and upstreams that are refused.
    #[derive(Copy)]
    GatewayLive(reader) {
        /// true: a start is refused while a tenant can't be served: its file is wrong, or its certificates are, or another new file
        /// claims its host. Without it the start goes on without that tenant, and says so: its hosts get 404. Set it where a
        /// wildcard of one tenant lies above hosts of others: it would take those of a file that can't be read.
        strict_tenants: bool = reader.boolean("gateway.strict_tenants", false),
        /// true: the gateway may be without tenants. Else a start is refused that finds none, or a folder tenants.d without one,
        /// and so is a reload that finds none there, or none at all, where there were some: a volume that is not mounted looks the same.
        allow_empty: bool = reader.boolean("gateway.allow_empty", false),
        /// true: upstreams may be link-local addresses (169.254.0.0/16, fe80::/10), or others where clouds hand out credentials
        /// (fd00:ec2::/32, fd20:ce::254, 100.100.100.200, 168.63.129.16). Names that lead there get no requests without it.
        allow_link_local: bool = reader.boolean("gateway.allow_link_local", false),
    }
}
