//! `[listen]`: where requests come in. `[authz]`: how other gateways that ask about their requests prove that they may.
//! `[web_bot_auth]`: the domains whose bots are known by the keys that they publish. `[shutdown]`: how the process ends.

use std::net::{IpAddr, SocketAddr};
use std::{path::PathBuf, slice::from_ref, time::Duration};

use ipnet::IpNet;

use crate::config::written::{choice, host, unless_zero, valid};
use crate::config::{notes::Content, reader::Reader};
use crate::domain::{BotDomains, FORWARDED_FOR, OF_PROXIES, TrustedHeaders, bot::domain_of};

/// How many addresses each of the listeners may have that have several.
const ADDRESSES_MAX: usize = 16;

/// How many networks of trusted proxies there may be.
const TRUSTED_PROXIES_MAX: usize = 1_024;

/// How many trusted headers there may be.
const TRUSTED_HEADERS_MAX: usize = 16;

/// How many workers there may be.
const WORKERS_MAX: i64 = 1_024;

const LISTENERS: [(&str, Listener); 3] =
    [("api", Listener::Api), ("gateway", Listener::Gateway), ("owners", Listener::Owners)];

/// A listener of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// That of the verification API.
    Api,
    /// That of the gateway.
    Gateway,
    /// That of agents' owners.
    Owners,
}

settings! {
    /// Addresses to listen on, and whom to believe about clients.
    Listen(reader) {
        /// Where the verification API is answered: an IP address and a port. Port 0 takes a free one.
        api: SocketAddr = reader.text("listen.api", "127.0.0.1:8080", socket_address),
        /// Where requests to tenants are taken in: up to 16 addresses such as "0.0.0.0:8000". Empty: there is no gateway.
        gateway: Vec<SocketAddr> =
            reader.texts("listen.gateway", &[], &(0..=ADDRESSES_MAX), socket_address),
        /// Where agents' owners manage keys from outside: up to 16 addresses such as "0.0.0.0:8081", with the API's endpoints /keys,
        /// /profile, /.well-known/tiergate, /console and /docs alone. /verify, /livez and /readyz are at listen.api only, which can
        /// stay inside then. Empty: owners reach listen.api or nothing.
        owners: Vec<SocketAddr> =
            reader.texts("listen.owners", &[], &(0..=ADDRESSES_MAX), socket_address),
        /// Where other gateways ask about requests that they forward themselves (docs/behind.md), up to 16 addresses. Empty: none does.
        /// All that reach it may ask: keep it on loopback, or set [authz]. Over HTTP the client is who X-Forwarded-For says, if the gateway
        /// is one of trusted_proxies, and otherwise the gateway, so that all clients share one budget of refused credentials.
        authz: Vec<SocketAddr> =
            reader.texts("listen.authz", &[], &(0..=ADDRESSES_MAX), socket_address),
        /// Where Prometheus metrics and the operator's page are answered. Keep it away from the public. No two listeners may share
        /// an address.
        admin: SocketAddr = reader.text("listen.admin", "127.0.0.1:8082", socket_address),
        /// Networks ("10.0.0.0/8") or single addresses of proxies in front of Tiergate that are believed; at most 1024. Empty: the
        /// client is whoever opened the connection.
        trusted_proxies: Vec<IpNet> =
            reader.texts("listen.trusted_proxies", &[], &(0..=TRUSTED_PROXIES_MAX), network),
        /// The forwarding headers that all of these proxies set or append to, up to 16: "Forwarded", "X-Forwarded-..." or one like
        /// "X-Real-IP". Others are removed: a proxy that does not set one passes it on as a stranger wrote it. Without
        /// "X-Forwarded-For" the client is the proxy. Add "X-Forwarded-Proto" for a proxy that ends TLS and sets it.
        trusted_headers: TrustedHeaders = reader
            .texts("listen.trusted_headers", &["X-Forwarded-For"], &(0..=TRUSTED_HEADERS_MAX), header)
            .map(|names| TrustedHeaders::new(&names.iter().map(String::as_str).collect::<Vec<_>>())),
        /// Listeners, "api", "owners" and "gateway", on which trusted_proxies speak the PROXY protocol, version 1 or 2: every
        /// connection begins with its header, before TLS, and comes from the client that it names. Connections without one, or from
        /// anybody else, are closed. Not both this and X-Forwarded-For, unless the balancer has a trusted proxy in front of it.
        proxy_protocol: Vec<Listener> =
            reader.texts("listen.proxy_protocol", &[], &(0..=LISTENERS.len()), choice(&LISTENERS)),
        /// How many threads serve API, owners and gateway, up to 1024; 0: one for each processor that the process may use, by its affinity
        /// and by the CPU quota of its control group (a limit of 2.5 CPUs is 2).
        workers: Option<u32> = reader.integer("listen.workers", 0, &(0..=WORKERS_MAX)).map(unless_zero),
        /// How many connections each of these listeners holds, 1 to 1000000; further ones are closed at once. They hold fewer where the
        /// process's limit of open files does not allow for that many: the log says at start how many.
        max_connections: u32 = reader.integer("listen.max_connections", 4_096, &(1..=1_000_000)),
        /// How many of these one client network may hold, an IPv4 address or an IPv6 /64, up to 1000000; 0: any number. In any case
        /// it gets another one only while it holds fewer than three times as many as are free, so that it leaves a quarter. Those of
        /// trusted_proxies are not counted: a balancer that is not among them is one network.
        max_connections_per_network: u32 =
            reader.integer("listen.max_connections_per_network", 0, &(0..=1_000_000)),
        /// How long a connection of any listener may be idle between two requests, 1s to 24h; over HTTP/2 also before the first, which else
        /// is 60s. Longer than a balancer in front keeps one (docs/behind.md says of some how long): otherwise it sends a request on a
        /// connection that is being closed, and one that must not be sent twice is lost.
        idle: Duration = reader.duration("listen.idle", "130s", ["1s", "24h"]),
        /// True if all listeners but `admin` speak TLS.
        tls: bool = Some(reader.is_given("listen.tls.cert") || reader.is_given("listen.tls.key")),
    } then {
        let is_given = proxy_protocol.as_ref().is_some_and(|listeners| !listeners.is_empty());
        if is_given && trusted_proxies.as_ref().is_some_and(Vec::is_empty) {
            let phrase = "is spoken by listen.trusted_proxies alone, and there are none; write both or neither";
            reader.report(&["listen.proxy_protocol", "listen.trusted_proxies"], phrase);
        }
        if max_connections_per_network == Some(1) {
            let phrase =
                "is 1: a client that opens its next connection while its last one is being closed is turned away; write more";
            reader.warn(&["listen.max_connections_per_network"], phrase);
        }
        let listeners = [
            ("listen.api", api.as_ref().map(from_ref)),
            ("listen.gateway", gateway.as_deref()),
            ("listen.owners", owners.as_deref()),
            ("listen.authz", authz.as_deref()),
            ("listen.admin", admin.as_ref().map(from_ref)),
        ];
        refuse_overlaps(reader, listeners);
    }
}

impl Listen {
    /// True if there is a listener for requests to tenants.
    pub(crate) fn reaches_tenants(&self) -> bool {
        !(self.gateway.is_empty() && self.authz.is_empty())
    }

    /// Every address that is listened on.
    pub(crate) fn all(&self) -> impl Iterator<Item = SocketAddr> {
        self.gateway.iter().chain(&self.owners).chain(&self.authz).copied().chain([self.api, self.admin])
    }

    /// Networks of proxies whose `X-Forwarded-For` names the client.
    pub fn client_proxies(&self) -> Vec<IpNet> {
        if self.trusted_headers.has(FORWARDED_FOR.as_bytes()) {
            self.trusted_proxies.clone()
        } else {
            Vec::new()
        }
    }
}

/// Each two listeners of which the second would find its address taken.
fn refuse_overlaps(reader: &mut Reader, listeners: [(&'static str, Option<&[SocketAddr]>); 5]) {
    let mut before: Vec<(&'static str, String, SocketAddr)> = Vec::new();
    for (path, addresses) in listeners {
        for (&address, number) in addresses.into_iter().flatten().zip(1_usize..) {
            let name = match path.trim_start_matches("listen.") {
                name @ ("api" | "admin") => name.to_owned(),
                name => format!("{name} item {number}"),
            };
            for (other_path, other_name, other) in &before {
                if overlap(*other, address) {
                    let phrase = format!(
                        "{other_name} is {other} and {name} is {address}; write two addresses that do not overlap"
                    );
                    reader.report(&[path, other_path], phrase);
                }
            }
            before.push((path, name, address));
        }
    }
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let wanted = "an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"";
    valid(text, text.parse().ok(), wanted)
}

/// A header by which proxies say how a request came.
fn header(text: &str) -> Result<String, String> {
    let others = OF_PROXIES.join(", ");
    let wanted = format!("a header of proxies: \"Forwarded\", \"X-Forwarded-...\", or one of {others}");
    valid(text, TrustedHeaders::may_name(text).then(|| text.to_owned()), wanted)
}

/// A network, or an address that is a network of its own. Bits behind the prefix do not count.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.ok().map(|network| network.trunc());
    valid(text, network, "an IP address or a network, such as \"10.0.0.0/8\"")
}

/// True when the second of two listeners would find its address taken. Port 0 is a free port each time, and `[::]`
/// listens to IPv4 too.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = |ip: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || one.is_ipv4() == other.is_ipv4());
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || everywhere(one.ip()) || everywhere(other.ip()))
}

settings! {
    /// How the listener for other gateways knows them.
    AuthzSettings(reader) {
        /// Optional. A file with the text that a gateway sends in X-Authz-Secret, 16 or more visible ASCII characters without a blank; of
        /// several lines any counts, so that it can be changed without a gap. A line with a colon is "tenant:secret", and good for the tenant of
        /// that id alone. Whoever does not send it is answered 503, and the log says so. It is read at the start.
        /// Example: "/etc/tiergate/authz-secret"
        secret_file: Option<PathBuf> = Some(reader.file("authz.secret_file", Content::Secret)),
        /// How long it may take to verify an agent, 50ms to 25s; 503 follows. Write less than the gateway waits.
        timeout: Duration = reader.duration("authz.timeout", "1s", ["50ms", "25s"]),
        /// True if the listener speaks TLS.
        tls: bool = Some(reader.is_given("authz.tls.cert") || reader.is_given("authz.tls.key")),
        /// The authorities of which a gateway must show a certificate. They are read at the start.
        /// Example: "/etc/tiergate/gateways.crt"
        client_ca: Option<PathBuf> = Some(reader.file("authz.tls.client_ca", Content::Authorities)),
    } then {
        if matches!((&client_ca, &tls), (Some(Some(_)), Some(false))) {
            reader.report(&["authz.tls.client_ca"], "needs authz.tls.cert and authz.tls.key; write them too");
        }
    }
}

impl AuthzSettings {
    /// Warns of a listener that anybody may ask who reaches it.
    pub(super) fn check(&self, reader: &mut Reader, listen: &Listen) {
        let is_open = self.secret_file.is_none() && self.client_ca.is_none();
        if is_open && listen.authz.iter().any(|address| !address.ip().is_loopback()) {
            let phrase = "is no loopback address, and anybody who reaches it may ask, and write who the client is; \
                          set authz.secret_file or authz.tls.client_ca";
            reader.warn(&["listen.authz"], phrase);
        }
    }
}

/// How many domains each list may have.
const DOMAINS_MAX: usize = 1_000;

/// Reads the domains whose bots are known.
pub(super) fn bots(reader: &mut Reader) -> Option<BotDomains> {
    read_all!(reader: BotDomains {
        /// Up to 1000 domains whose keys are read: "crawler.example", "*.example" for all below it, or "*". Each domain has a limit of its
        /// own, and costs little: list those that you know. Only public addresses, and port 443. Empty: no bot is known.
        public: reader.texts("web_bot_auth.domains", &[], &(0..=DOMAINS_MAX), host),
        /// The same for domains at any address, such as "bots.internal" or "bots.internal:8443".
        private: reader.texts("web_bot_auth.private_domains", &[], &(0..=DOMAINS_MAX), |text| {
            let domain = domain_of(&format!("https://{text}")).filter(|domain| **domain == *text);
            let wanted =
                "a domain in small letters, such as \"bots.internal\" or \"bots.internal:8443\"";
            valid(text, domain, wanted)
        }),
    })
}

settings! {
    /// How the process ends after SIGTERM. By default a balancer has five seconds to notice, and both together are less than the
    /// 30 seconds after which Kubernetes kills.
    #[derive(Copy)]
    ShutdownSettings(reader) {
        /// After SIGTERM /readyz is 503, and everything is served for so long, up to 1h, before listeners close: as long as a
        /// balancer, or Kubernetes, takes to send nothing more. "0s" where nobody balances.
        delay: Duration = reader.duration("shutdown.delay", "5s", ["0s", "1h"]),
        /// For how long requests and streams under way may then go on, up to 24h. The process ends when nothing is left. Both
        /// together should be less than what the supervisor waits before it kills: 30s in Kubernetes.
        grace: Duration = reader.duration("shutdown.grace", "20s", ["0s", "24h"]),
    }
}
