//! How one tenant's requests are forwarded: time limits, health checks, certificates toward upstreams, how many may be under way,
//! and pages of other origins.

use std::ops::RangeInclusive;

use http::HeaderName;

use crate::config::written::{Bounds, unless_zero, valid};
use crate::config::{notes::Content, reader::Reader, tenants::route::method};
use crate::domain::{
    AcceptedCredentials, CorsRules, HealthRules, HostPattern, InFlight, ProxyRules, Timeouts, UpstreamLimits,
    UpstreamTls, WebOrigin,
};

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
        timeouts: read_all!(reader: Timeouts {
            /// Connecting to an upstream, TLS included.
            connect: reader.duration("timeouts.connect", "5s", UP_TO_A_DAY),
            /// Silence of an upstream while an answer is awaited or read. Raise it for answers that come bit by bit.
            read: reader.duration("timeouts.read", "60s", UP_TO_A_DAY),
            /// An upstream that takes no bytes of a request.
            write: reader.duration("timeouts.write", "60s", UP_TO_A_DAY),
            /// How long an unused connection to an upstream is kept. An upstream of http:// that says Keep-Alive: timeout=5 has it for 4s at most.
            /// For one that closes early and says nothing, as uvicorn does after 5s, write less: a request that meets the end is 502.
            idle: reader.duration("timeouts.idle", "60s", UP_TO_A_DAY),
            /// The whole request, from its head to the end of the answer; "0s" = no limit.
            total: reader.duration_or_none("timeouts.total", "1h", UP_TO_A_DAY),
        }),
        /// How upstreams are chosen: in turn ("round_robin"), or the less busy one of two ("least_request").
        by_load: reader.word("balance", "round_robin", &[("round_robin", false), ("least_request", true)]),
        upstream_limits: read_all!(reader: UpstreamLimits {
            /// How many requests may be under way at it, 1 to 100000.
            in_flight_max: reader.integer("upstream_limits.max_in_flight", 1_024, &(1..=100_000)),
            /// How many more may wait for that, as long as for a connection, up to 10000; further ones are 503.
            pending_max: reader.integer("upstream_limits.max_pending", 64, &(0..=10_000)),
        }),
        health: read_all!(reader: HealthRules {
            /// Optional. What is asked for with GET; an answer of 2xx or 3xx is healthy. Without it a TCP connection is enough.
            /// Example: "/healthz"
            path: Some(reader.text("health.path", None, |text| {
                // A request line takes a query, and no fragment.
                let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
                let is_path =
                    text.starts_with('/') && text.len() <= HEALTH_PATH_BYTES_MAX && text.bytes().all(plain);
                let wanted = format_args!(
                    "a path of at most {HEALTH_PATH_BYTES_MAX} bytes without blanks and #, such as \"/healthz\""
                );
                valid(text, is_path.then(|| text.into()), wanted)
            })),
            // Not so often that the checks themselves are a load.
            /// How often, 10ms to 24h; "0s" = never. Nothing is asked of a single upstream without a path.
            interval: reader.duration_or_none("health.interval", "10s", ["10ms", "24h"]),
            /// How long one check may take, up to 24h.
            timeout: reader.duration("health.timeout", "2s", UP_TO_A_DAY),
            /// After how many failed requests in a row an upstream gets no more of them for a while, up to 1000; 0 = never.
            eject_after: reader.integer("health.eject_after", 3, &(0..=1_000)),
            /// For how long, up to 24h.
            eject_for: reader.duration("health.eject_for", "10s", UP_TO_A_DAY),
        }),
        upstream_tls: read_all!(reader: UpstreamTls {
            /// Example: "/etc/tiergate/acme-ca.crt"
            ca: Some(reader.file("upstream_tls.ca", Content::Authorities)),
            /// Example: "/etc/tiergate/client.crt"
            /// Example: "/etc/tiergate/client.key"
            client: reader.key_pair("upstream_tls.cert", "upstream_tls.key"),
            /// Example: "api.internal.example"
            server_name: Some(reader.text("upstream_tls.server_name", None, server_name)),
        }),
    })
}

/// One host, IPv6 without brackets, as upstreams have it.
fn server_name(text: &str) -> Result<Box<str>, String> {
    let name = match HostPattern::parse(text) {
        Some(HostPattern::Exact(name)) => Some(name.trim_start_matches('[').trim_end_matches(']').into()),
        Some(HostPattern::Below(_) | HostPattern::Any) | None => None,
    };
    valid(text, name, "one host, such as \"api.internal.example\"")
}

const COUNT: RangeInclusive<i64> = 1..=1_000_000;

/// Reads how many of the tenant's requests may be under way.
pub(super) fn in_flight(reader: &mut Reader) -> Option<InFlight> {
    read_all!(reader: InFlight {
        /// All of them.
        all: reader.integer("limits.max_in_flight", 1_024, &COUNT),
        /// Those of strangers on public routes. If this is not less, they may hold every place.
        public: reader.integer("limits.max_in_flight_public", 512, &COUNT),
        /// Those of one agent.
        per_agent: reader.integer("limits.max_in_flight_per_agent", 128, &COUNT),
        /// WebSockets and event streams of one agent, beside its other requests.
        streams_per_agent: reader.integer("limits.max_streams_per_agent", 16, &COUNT),
        /// How many may wait for a place, up to 10000; strangers are counted apart.
        queue_max: reader.integer("limits.max_queued", 128, &(0..=10_000)),
        // A line that lasts longer than clients wait is of no use.
        /// For how long, 1ms to 10s.
        queue_time: reader.duration("limits.queue_timeout", "500ms", ["1ms", "10s"]),
    })
}

/// Warns where strangers on public routes may hold every place of the tenant's agents.
pub(super) fn check_strangers(reader: &mut Reader, &InFlight { all, public, .. }: &InFlight) {
    // Of one place nobody can be left a part.
    if public >= all && all > 1 {
        let phrase = format!(
            "is {public} and limits.max_in_flight {all}: strangers on public routes may hold every place; write less"
        );
        reader.warn(&["limits.max_in_flight_public"], phrase);
    }
}

/// How many items each list may have.
const ITEMS_MAX: usize = 64;

/// Stands for every origin.
const ANY: &str = "*";

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Headers with agents' credentials, the content type of their bodies, and those of MCP.
const HEADERS: &str = "Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, X-API-Key, X-Agent-Id, X-Agent-Nonce, X-Agent-Signature, X-Agent-Timestamp";

/// Headers of requests that are signed themselves.
const OF_MESSAGES: [&str; 3] = ["Content-Digest", "Signature", "Signature-Input"];

/// Headers of answers that are ours, and those of MCP.
const OURS: &str = "Last-Event-ID, Link, MCP-Protocol-Version, Mcp-Session-Id, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-RateLimit-Limit, X-RateLimit-Remaining, X-Request-Id";

/// Reads the rules for pages of other origins; none without origins. The outer `None` is a problem.
pub(super) fn cors(
    reader: &mut Reader,
    credentials: Option<AcceptedCredentials>,
) -> Option<Option<CorsRules>> {
    let count = 0..=ITEMS_MAX;
    keys! { reader:
        /// Up to 64 origins as browsers write them, such as "https://app.example", or "*" alone for all.
        origins = reader.texts("cors.origins", &[], &count, origin);
        /// Up to 64 methods that pages may use, beside those that need no leave.
        methods = reader.texts("cors.methods", &METHODS, &count, method);
    }
    let has_messages = credentials.is_some_and(AcceptedCredentials::has_messages);
    let of_messages: &[&str] = if has_messages { &OF_MESSAGES } else { &[] };
    let headers: Vec<&str> = HEADERS.split(", ").chain(of_messages.iter().copied()).collect();
    keys! { reader:
        /// Up to 64 headers that pages may send.
        /// Where requests are signed themselves, Content-Digest, Signature and Signature-Input are among them too.
        headers = reader.texts("cors.headers", &headers, &count, header);
        /// Up to 64 headers of answers that pages may read, beside the gateway's own and those of MCP.
        exposed = reader.texts("cors.exposed_headers", &[], &count, header);
        /// true: pages may use cookies. Not for all origins.
        credentials = reader.boolean("cors.credentials", false);
        /// How long browsers may remember this, up to 24h.
        max_age = reader.duration("cors.max_age", "10m", ["0s", "24h"]);
    }
    let (origins, credentials) = (origins?, credentials?);
    let is_any = origins.iter().any(|origin| &**origin == ANY);
    if is_any && origins.len() > 1 {
        reader.report(&["cors.origins"], "has \"*\" beside others; write it alone");
        return None;
    }
    if is_any && credentials {
        reader.report(&["cors.credentials"], "can't be true for every origin; name the origins");
        return None;
    }
    let ours = std::iter::once(OURS.into()).chain(has_messages.then(|| "Accept-Signature".into()));
    let exposed: Vec<Box<str>> = ours.chain(exposed?).collect();
    Some((!origins.is_empty()).then_some(CorsRules {
        origins: (!is_any).then_some(origins),
        methods: methods?.join(", ").into(),
        headers: headers?.join(", ").into(),
        exposed: exposed.join(", ").into(),
        credentials,
        max_age: max_age?,
    }))
}

/// An origin as browsers write it, or any.
fn origin(text: &str) -> Result<Box<str>, String> {
    let is_one = WebOrigin::parse(text).is_ok_and(|origin| origin.as_str() == text) && !text.contains(ANY);
    let wanted = "an origin as browsers do, such as \"https://app.example\", or \"*\" for all";
    valid(text, (is_one || text == ANY).then(|| text.into()), wanted)
}

fn header(text: &str) -> Result<Box<str>, String> {
    let is_name = HeaderName::from_bytes(text.as_bytes()).is_ok();
    valid(text, is_name.then(|| text.into()), "a header name, such as \"X-Total-Count\"")
}
