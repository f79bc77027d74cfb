//! How one tenant's requests are forwarded: time limits, health checks, certificates toward upstreams.

use crate::config::choice::choice;
use crate::config::duration::Bounds;
use crate::config::files::{key_pair, noted_file};
use crate::config::notes::Content;
use crate::config::reader::Reader;
use crate::config::written::{unless_zero, valid};
use crate::domain::host::HostPattern;
use crate::domain::tenant::{
    Balance, HealthRules, HostHeader, ProxyRules, Timeouts, UpstreamLimits, UpstreamTls,
};

const HOST_HEADER: [(&str, HostHeader); 2] =
    [("client", HostHeader::Client), ("upstream", HostHeader::Upstream)];

const BALANCE: [(&str, Balance); 2] =
    [("round_robin", Balance::RoundRobin), ("least_request", Balance::LeastRequest)];

const UP_TO_A_DAY: Bounds = ["1ns", "24h"];

/// The longest path of a health check, in bytes.
const HEALTH_PATH_BYTES_MAX: usize = 1_024;

pub(super) fn read(reader: &mut Reader) -> Option<ProxyRules> {
    read_all!(ProxyRules {
        host_header: reader.text("host_header", "client", choice(&HOST_HEADER)),
        connect_retries: reader.integer("connect_retries", 2, &(0..=8)),
        body_bytes_max: reader.integer("max_body_bytes", 0, &(0..=i64::MAX)).map(unless_zero),
        timeouts: timeouts(reader),
        balance: reader.text("balance", "round_robin", choice(&BALANCE)),
        upstream_limits: upstream_limits(reader),
        health: health(reader),
        upstream_tls: upstream_tls(reader),
    })
}

fn timeouts(reader: &mut Reader) -> Option<Timeouts> {
    read_all!(Timeouts {
        connect: reader.duration("timeouts.connect", "5s", UP_TO_A_DAY),
        read: reader.duration("timeouts.read", "60s", UP_TO_A_DAY),
        write: reader.duration("timeouts.write", "60s", UP_TO_A_DAY),
        idle: reader.duration("timeouts.idle", "60s", UP_TO_A_DAY),
        total: reader.duration_or_none("timeouts.total", "1h", UP_TO_A_DAY),
    })
}

fn upstream_limits(reader: &mut Reader) -> Option<UpstreamLimits> {
    read_all!(UpstreamLimits {
        in_flight_max: reader.integer("upstream_limits.max_in_flight", 1_024, &(1..=100_000)),
        pending_max: reader.integer("upstream_limits.max_pending", 64, &(0..=10_000)),
    })
}

fn health(reader: &mut Reader) -> Option<HealthRules> {
    read_all!(HealthRules {
        path: Some(reader.optional_text("health.path", health_path)),
        // Not so often that the checks themselves are a load.
        interval: reader.duration_or_none("health.interval", "10s", ["10ms", "24h"]),
        timeout: reader.duration("health.timeout", "2s", UP_TO_A_DAY),
        eject_after: reader.integer("health.eject_after", 3, &(0..=1_000)),
        eject_for: reader.duration("health.eject_for", "10s", UP_TO_A_DAY),
        slow_start: reader.duration_or_none("health.slow_start", "10s", UP_TO_A_DAY),
    })
}

fn upstream_tls(reader: &mut Reader) -> Option<UpstreamTls> {
    read_all!(UpstreamTls {
        ca: Some(noted_file(reader, "upstream_tls.ca", Content::Authorities)),
        client: key_pair(reader, "upstream_tls.cert", "upstream_tls.key"),
        server_name: Some(reader.optional_text("upstream_tls.server_name", server_name)),
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
