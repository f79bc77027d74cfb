//! Tenants and their routes: whose traffic comes in under which host, who may pass, and where it goes.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use ipnet::IpNet;

use crate::domain::tier::{PerTier, Tier};
use crate::domain::{
    host::{HostPattern, of_authority},
    mcp::CallPatterns,
    path::PathPattern,
    window::Quota,
};

/// One tenant of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its name in limits, logs and metrics; unique.
    pub id: Arc<str>,
    /// The hosts that are its own and no other tenant's; none for a tenant that other gateways forward for.
    pub hosts: Vec<HostPattern>,
    /// The hosts that signatures over requests count for, named one by one or below a `*.`: those that are listed for that,
    /// or its own.
    pub signed_hosts: Vec<HostPattern>,
    /// Where its requests go; none for a tenant without hosts.
    pub upstreams: Vec<Upstream>,
    /// The networks that the addresses of all its upstreams lie in; nothing: anywhere.
    pub networks: Option<Arc<[IpNet]>>,
    /// The lowest tier that passes, 1 to 4.
    pub min_tier: Tier,
    /// What it takes as proof.
    pub credentials: AcceptedCredentials,
    /// True if the body of a request that is signed itself is compared with its digest before any of it goes upstream, and
    /// not while it passes: then the upstream gets all of another body but its end.
    pub holds_bodies: bool,
    /// Its own limits; nothing: those of the service.
    pub requests_per_minute: Option<PerTier<Quota>>,
    /// True if an agent is refused whose `Origin` is not the one declared for its key. Otherwise it passes, and the upstream
    /// is told.
    pub denies_endpoint_mismatch: bool,
    /// Rules for parts of it; the first that matches counts, and without one the tenant's own policy.
    pub routes: Vec<Route>,
    /// The certificate that clients of its hosts are shown; nothing: the listener's.
    pub tls: Option<KeyPair>,
    /// How requests are forwarded.
    pub proxy: ProxyRules,
    /// Which pages of other origins may use it; nothing: its upstreams decide.
    pub cors: Option<CorsRules>,
    /// How many requests may be under way.
    pub in_flight: InFlight,
    /// Whether the gateway says itself, to everybody, what agents need here, where a route would ask for an agent.
    pub discovery: bool,
    /// Whether its upstreams get a signed assertion about each agent.
    pub assertion: bool,
    /// True if all its paths are those of MCP endpoints, and not only those of routes that say so.
    pub mcp: bool,
}

/// How many of a tenant's requests may be under way at once in one process, and how many may wait for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// All of them.
    pub all: u32,
    /// Those of strangers on public routes.
    pub public: u32,
    /// Those of one agent, but for streams.
    pub per_agent: u32,
    /// Those of one agent that ask for a stream.
    pub streams_per_agent: u32,
    /// How many may wait; strangers apart from agents.
    pub queue_max: u32,
    /// For how long.
    pub queue_time: Duration,
}

/// One rule of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Which paths it takes.
    pub path: PathPattern,
    /// Which methods it takes; empty: all.
    pub methods: Vec<Box<str>>,
    /// Who may pass.
    pub access: RouteAccess,
    /// The lowest tier that passes; nothing: the tenant's.
    pub min_tier: Option<Tier>,
    /// How many requests of one client a public route takes; nothing: no limit.
    pub requests_per_minute: Option<Quota>,
    /// How many requests of one bot it takes, by the domain that the bot proves; nothing: bots are clients as others.
    pub bot_requests_per_minute: Option<Quota>,
    /// Where these requests go; empty: where the tenant's go.
    pub upstreams: Vec<Upstream>,
    /// Whether WebSocket upgrades are passed on.
    pub upgrades: bool,
    /// True if its path is that of an MCP endpoint.
    pub mcp: bool,
    /// Which calls of MCP it takes; empty: requests by path and method alone.
    pub calls: CallPatterns,
}

impl Route {
    /// Its path as it is written, and its calls behind it.
    pub fn name(&self) -> String {
        let calls: Vec<String> = self.calls.written().collect();
        let calls = if calls.is_empty() { String::new() } else { format!(" [{}]", calls.join(", ")) };
        format!("{}{calls}", self.path.as_str())
    }
}

/// The callers that may pass a route. The stricter rule is the greater one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteAccess {
    /// Everybody.
    Public,
    /// Verified agents.
    Agents,
    /// Nobody.
    Deny,
}

/// What a tenant takes as proof; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedCredentials {
    /// API keys.
    pub api_key: bool,
    /// Signatures of owners.
    pub signature: bool,
    /// Requests that are signed themselves (ERC-8128).
    pub erc8128: bool,
    /// Such requests whose signatures have no tag, as libraries of early 2026 make them.
    pub erc8128_untagged: bool,
}

impl AcceptedCredentials {
    /// True if requests may be signed themselves.
    pub const fn has_messages(self) -> bool {
        self.erc8128 || self.erc8128_untagged
    }
}

/// A certificate chain and its private key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyPair {
    /// The chain, leaf first.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// How a tenant's requests are forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRules {
    /// True if the upstream sees its own name as `Host`, and not what the client sent.
    pub shows_own_host: bool,
    /// How many further upstreams are tried when one can't be connected to.
    pub connect_retries: u8,
    /// The longest request body, in bytes; nothing: no limit.
    pub body_bytes_max: Option<u64>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// True if the less busy one of two upstreams is chosen, and not each in turn.
    pub by_load: bool,
    /// How much an upstream is given.
    pub upstream_limits: UpstreamLimits,
    /// How upstreams are watched.
    pub health: HealthRules,
    /// Certificates toward upstreams that speak TLS.
    pub upstream_tls: UpstreamTls,
}

/// How much each upstream is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// How many requests may be under way at it.
    pub in_flight_max: u32,
    /// How many may wait for that.
    pub pending_max: u32,
}

/// How long a tenant's requests may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Connecting to an upstream, with TLS.
    pub connect: Duration,
    /// Silence of an upstream while an answer is awaited or read.
    pub read: Duration,
    /// An upstream that takes no bytes of a request.
    pub write: Duration,
    /// How long an unused connection to an upstream is kept.
    pub idle: Duration,
    /// The whole request, from its head to the end of the answer; nothing: no limit.
    pub total: Option<Duration>,
}

/// How upstreams are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthRules {
    /// What is asked for with GET, a 2xx or 3xx being healthy; nothing: a TCP connection is enough.
    pub path: Option<Box<str>>,
    /// How often; nothing: not at all.
    pub interval: Option<Duration>,
    /// How long one check may take.
    pub timeout: Duration,
    /// After how many failed requests in a row an upstream gets no more of them for a while; 0: never.
    pub eject_after: u32,
    /// For how long.
    pub eject_for: Duration,
}

/// Certificates toward upstreams that speak TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamTls {
    /// The authorities that an upstream's certificate may stem from, as a PEM file; nothing: the system's.
    pub ca: Option<PathBuf>,
    /// What is shown to upstreams that ask for a certificate.
    pub client: Option<KeyPair>,
    /// The name that an upstream's certificate must bear; nothing: its host.
    pub server_name: Option<Box<str>>,
}

/// The rules for pages of other origins (Fetch standard). Lists are as header values have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsRules {
    /// The origins that may, as browsers write them; nothing: all.
    pub origins: Option<Vec<Box<str>>>,
    /// The methods that they may use.
    pub methods: Box<str>,
    /// The headers that they may send.
    pub headers: Box<str>,
    /// The headers of answers that they may read, ours included.
    pub exposed: Box<str>,
    /// True if they may use cookies.
    pub credentials: bool,
    /// How long browsers may remember the rules.
    pub max_age: Duration,
}

impl CorsRules {
    /// True if pages of this origin may use the API.
    pub fn allows(&self, origin: &[u8]) -> bool {
        let listed = |origins: &Vec<Box<str>>| origins.iter().any(|allowed| allowed.as_bytes() == origin);
        self.origins.as_ref().is_none_or(listed)
    }
}

/// How an upstream is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamScheme {
    /// HTTP/1.1 in the clear.
    Http,
    /// TLS; HTTP/2 or HTTP/1.1, whichever the upstream chooses.
    Https,
    /// HTTP/2 in the clear, with prior knowledge.
    H2c,
}

/// One upstream: `host:port`, or with `http://`, `https://` or `h2c://` in front. The port is optional behind a scheme. It may
/// end with ` weight=N`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// How it is spoken to.
    pub scheme: UpstreamScheme,
    /// A name or an IP address; IPv6 without brackets.
    pub host: Box<str>,
    /// Its port.
    pub port: u16,
    /// Its share beside others, 1 to 100.
    pub weight: u8,
}

/// The largest weight.
const WEIGHT_MAX: u8 = 100;

impl Upstream {
    /// Reads an upstream; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (text, weight) = match text.split_once(" weight=") {
            Some((text, weight)) => (text, weight.parse().ok()?),
            None => (text, 1),
        };
        let (scheme, rest, default_port) = match text.split_once("://") {
            Some(("http", rest)) => (UpstreamScheme::Http, rest, Some(80)),
            Some(("https", rest)) => (UpstreamScheme::Https, rest, Some(443)),
            Some(("h2c", rest)) => (UpstreamScheme::H2c, rest, Some(80)),
            Some(_) => return None,
            None => (UpstreamScheme::Http, text, None),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let port = match rest.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => port.parse().ok(),
            Some(_) | None => default_port,
        };
        let port = port.filter(|port| *port != 0)?;
        let host = of_authority(rest)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').into();
        Some(Self { scheme, host, port, weight }).filter(|_| (1..=WEIGHT_MAX).contains(&weight))
    }

    /// The same wherever it stands, whatever its share there.
    pub fn alone(&self) -> Self {
        Self { weight: 1, ..self.clone() }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            UpstreamScheme::Http => "http",
            UpstreamScheme::Https => "https",
            UpstreamScheme::H2c => "h2c",
        };
        if self.host.contains(':') {
            write!(out, "{scheme}://[{}]:{}", self.host, self.port)?;
        } else {
            write!(out, "{scheme}://{}:{}", self.host, self.port)?;
        }
        if self.weight == 1 { Ok(()) } else { write!(out, " weight={}", self.weight) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Upstream, UpstreamScheme};

    #[test]
    fn a_scheme_says_how_an_upstream_is_spoken_to_and_which_port_it_has() {
        for (text, scheme, host, port) in [
            ("127.0.0.1:9000", UpstreamScheme::Http, "127.0.0.1", 9000),
            ("Backend.internal:80", UpstreamScheme::Http, "backend.internal", 80),
            ("http://backend", UpstreamScheme::Http, "backend", 80),
            ("https://backend/", UpstreamScheme::Https, "backend", 443),
            ("https://backend.:8443", UpstreamScheme::Https, "backend", 8443),
            ("h2c://backend", UpstreamScheme::H2c, "backend", 80),
            ("[::1]:9000", UpstreamScheme::Http, "::1", 9000),
            ("https://[2001:DB8::1]", UpstreamScheme::Https, "2001:db8::1", 443),
        ] {
            assert_eq!(
                Upstream::parse(text),
                Some(Upstream { scheme, host: host.into(), port, weight: 1 }),
                "{text}"
            );
        }
        let heavy = Upstream::parse("h2c://backend weight=100").unwrap();
        assert_eq!((heavy.weight, heavy.to_string().as_str()), (100, "h2c://backend:80 weight=100"));
    }

    #[test]
    fn what_can_not_be_connected_to_is_refused() {
        for text in [
            "",
            "backend",
            "[::1]",
            "::1:80",
            ":80",
            "http://",
            "http://:80",
            "backend:",
            "http://backend:",
            "backend:0",
            "backend:65536",
            "backend:+80",
            "backend:80:80",
            "ftp://backend:21",
            "HTTP://backend",
            "http://backend/path",
            "http://backend//",
            "http://backend?x",
            "http://user@backend",
            "*:80",
            "*.backend:80",
            "back end:80",
            "[::1]x:80",
            "[a]:80",
            "unix:/run/backend.sock",
            "backend:80 weight=0",
            "backend:80 weight=101",
            "backend:80 weight=",
            "backend:80 weight=2 weight=2",
            "backend:80  weight=2",
        ] {
            assert!(Upstream::parse(text).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_upstream_is_read_as_it_is_written(
            text in "(http://|https://|h2c://)?([a-z.]{1,8}|\\[[0-9a-f:]{2,8}\\])(:[0-9]{1,5})?/?",
        ) {
            if let Some(upstream) = Upstream::parse(&text) {
                prop_assert_eq!(Upstream::parse(&upstream.to_string()), Some(upstream));
            }
        }

        #[test]
        fn no_text_is_too_strange_to_be_judged(text in any::<String>()) {
            let _ = Upstream::parse(&text);
        }
    }
}
