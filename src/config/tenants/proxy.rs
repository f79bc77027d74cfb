//! How one tenant's requests are forwarded: time limits, health checks, certificates toward upstreams.

use crate::config::files::{key_pair, noted_file};
use crate::config::written::{Bounds, unless_zero, valid};
use crate::config::{notes::Content, reader::Reader};
use crate::domain::{HealthRules, HostPattern, ProxyRules, Timeouts, UpstreamLimits, UpstreamTls};

const UP_TO_A_DAY: Bounds = ["1ns", "24h"];

/// The longest path of a health check, in bytes.
const HEALTH_PATH_BYTES_MAX: usize = 1_024;

pub(super) fn read(reader: &mut Reader) -> Option<ProxyRules> {
    read_all!(reader: ProxyRules {
        /// The Host that the upstream sees: the one of the "client", or the "upstream"'s own name.
        shows_own_host: reader.word("host_header", "client", &[("client", false), ("upstream", true)]),
        /// How many more upstreams are tried when one can't be connected to at any address of its name, 0 to 8.
        connect_retries: reader.integer("connect_retries", 2, &(0..=8)),
        /// The longest request body, in bytes; 0 = no limit.
        body_bytes_max: reader.integer("max_body_bytes", 0, &(0..=i64::MAX)).map(unless_zero),
        timeouts: timeouts(reader),
        /// How upstreams are chosen: in turn ("round_robin"), or the less busy one of two ("least_request").
        by_load: reader.word("balance", "round_robin", &[("round_robin", false), ("least_request", true)]),
        upstream_limits: upstream_limits(reader),
        health: health(reader),
        upstream_tls: upstream_tls(reader),
    })
}

fn timeouts(reader: &mut Reader) -> Option<Timeouts> {
    read_all!(reader: Timeouts {
        /// Connecting to an upstream, TLS included.
        connect: reader.duration("timeouts.connect", "5s", UP_TO_A_DAY),
        /// Silence of an upstream while an answer is awaited or read. Raise it for answers that come bit by bit.
        read: reader.duration("timeouts.read", "60s", UP_TO_A_DAY),
        /// An upstream that takes no bytes of a request.
        write: reader.duration("timeouts.write", "60s", UP_TO_A_DAY),
        /// How long an unused connection to an upstream is kept. An upstream of http:// that says Keep-Alive: timeout=5 has it for 4s at most.
        idle: reader.duration("timeouts.idle", "60s", UP_TO_A_DAY),
        /// The whole request, from its head to the end of the answer; "0s" = no limit.
        total: reader.duration_or_none("timeouts.total", "1h", UP_TO_A_DAY),
    })
}

fn upstream_limits(reader: &mut Reader) -> Option<UpstreamLimits> {
    read_all!(reader: UpstreamLimits {
        /// How many requests may be under way at it, 1 to 100000.
        in_flight_max: reader.integer("upstream_limits.max_in_flight", 1_024, &(1..=100_000)),
        /// How many more may wait for that, as long as for a connection, up to 10000; further ones are 503.
        pending_max: reader.integer("upstream_limits.max_pending", 64, &(0..=10_000)),
    })
}

fn health(reader: &mut Reader) -> Option<HealthRules> {
    read_all!(reader: HealthRules {
        /// Optional. What is asked for with GET; an answer of 2xx or 3xx is healthy. Without it a TCP connection is enough.
        /// Example: "/healthz"
        path: Some(reader.text("health.path", None, health_path)),
        // Not so often that the checks themselves are a load.
        /// How often, 10ms to 24h; "0s" = never. Nothing is asked of a single upstream without a path.
        interval: reader.duration_or_none("health.interval", "10s", ["10ms", "24h"]),
        /// How long one check may take, up to 24h.
        timeout: reader.duration("health.timeout", "2s", UP_TO_A_DAY),
        /// After how many failed requests in a row an upstream gets no more of them for a while, up to 1000; 0 = never.
        eject_after: reader.integer("health.eject_after", 3, &(0..=1_000)),
        /// For how long, up to 24h.
        eject_for: reader.duration("health.eject_for", "10s", UP_TO_A_DAY),
    })
}

fn upstream_tls(reader: &mut Reader) -> Option<UpstreamTls> {
    read_all!(reader: UpstreamTls {
        /// Example: "/etc/tiergate/acme-ca.crt"
        ca: Some(noted_file(reader, "upstream_tls.ca", Content::Authorities)),
        /// Example: "/etc/tiergate/client.crt"
        /// Example: "/etc/tiergate/client.key"
        client: key_pair(reader, "upstream_tls.cert", "upstream_tls.key"),
        /// Example: "api.internal.example"
        server_name: Some(reader.text("upstream_tls.server_name", None, server_name)),
    })
}

/// What may stand in a request line; a query may, a fragment may not.
fn health_path(text: &str) -> Result<Box<str>, String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    let is_path = text.starts_with('/') && text.len() <= HEALTH_PATH_BYTES_MAX && text.bytes().all(plain);
    let wanted = format_args!(
        "a path of at most {HEALTH_PATH_BYTES_MAX} bytes without blanks and #, such as \"/healthz\""
    );
    valid(text, is_path.then(|| text.into()), wanted)
}

/// One host, IPv6 without brackets, as upstreams have it.
fn server_name(text: &str) -> Result<Box<str>, String> {
    let name = match HostPattern::parse(text) {
        Some(HostPattern::Exact(name)) => Some(name.trim_start_matches('[').trim_end_matches(']').into()),
        Some(HostPattern::Below(_) | HostPattern::Any) | None => None,
    };
    valid(text, name, "one host, such as \"api.internal.example\"")
}
