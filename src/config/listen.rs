//! `[listen]`: where requests come in.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::config::choice::choice;
use crate::config::files::key_pair;
use crate::config::reader::Reader;
use crate::config::written::quoted;
use crate::domain::tenant::KeyPair;
use crate::domain::trusted_headers::{FORWARDED_FOR, OF_PROXIES, TrustedHeaders};

/// How many addresses each of the listeners may have that have several.
const ADDRESSES_MAX: usize = 16;

/// How many networks of trusted proxies there may be.
const TRUSTED_PROXIES_MAX: usize = 1_024;

/// How many trusted headers there may be.
const TRUSTED_HEADERS_MAX: usize = 16;

/// How many workers there may be.
const WORKERS_MAX: i64 = 1_024;

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

/// Addresses to listen on, and whom to believe about clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Where the verification API is answered.
    pub api: SocketAddr,
    /// Where requests to tenants are answered; empty: there is no gateway. At most 16.
    pub gateway: Vec<SocketAddr>,
    /// Where the endpoints for agents' owners are answered, and no others; empty: nowhere but at `api`. At most 16.
    pub owners: Vec<SocketAddr>,
    /// Where other gateways ask about their requests; empty: none does. At most 16.
    pub authz: Vec<SocketAddr>,
    /// Where metrics are answered.
    pub admin: SocketAddr,
    /// Networks of proxies that are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The headers of theirs that are believed.
    pub trusted_headers: TrustedHeaders,
    /// Listeners on which these proxies, and nobody else, speak the PROXY protocol.
    pub proxy_protocol: Vec<Listener>,
    /// How many threads serve API and gateway, 1 to 1,024; nothing: one for each processor that the process may use.
    pub workers: Option<u32>,
    /// How many connections each listener holds; 1 to 1,000,000.
    pub max_connections: u32,
    /// How many of them a network of clients may hold; up to 1,000,000, and 0 is no number of its own.
    pub max_connections_per_network: u32,
    /// The certificate and key of all listeners but `admin`. `None`: they do not speak TLS.
    pub tls: Option<KeyPair>,
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

    /// True if a restart is needed for the difference to another. Certificates are read again.
    pub(super) fn waits_for_restart(&self, other: &Self) -> bool {
        let without_tls = Self { tls: other.tls.clone(), ..self.clone() };
        self.tls.is_some() != other.tls.is_some() || without_tls != *other
    }

    /// Networks of proxies whose `X-Forwarded-For` names the client.
    pub fn client_proxies(&self) -> Vec<IpNet> {
        if self.trusted_headers.has(FORWARDED_FOR.as_bytes()) {
            self.trusted_proxies.clone()
        } else {
            Vec::new()
        }
    }

    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let workers = reader.integer("listen.workers", 0, &(0..=WORKERS_MAX));
        let listeners =
            choice(&[("api", Listener::Api), ("gateway", Listener::Gateway), ("owners", Listener::Owners)]);
        read_all!(Self {
            api: reader.text("listen.api", "127.0.0.1:8080", socket_address),
            gateway: reader.texts("listen.gateway", &[], &(0..=ADDRESSES_MAX), socket_address),
            owners: reader.texts("listen.owners", &[], &(0..=ADDRESSES_MAX), socket_address),
            authz: reader.texts("listen.authz", &[], &(0..=ADDRESSES_MAX), socket_address),
            admin: reader.text("listen.admin", "127.0.0.1:8082", socket_address),
            trusted_proxies: reader.texts("listen.trusted_proxies", &[], &(0..=TRUSTED_PROXIES_MAX), network),
            trusted_headers: reader
                .texts("listen.trusted_headers", &["X-Forwarded-For"], &(0..=TRUSTED_HEADERS_MAX), header)
                .map(|names| TrustedHeaders::new(&names.iter().map(|name| &**name).collect::<Vec<_>>())),
            proxy_protocol: reader.texts("listen.proxy_protocol", &[], &(0..=3), listeners),
            workers: workers.map(|workers: u32| (workers > 0).then_some(workers)),
            max_connections: reader.integer("listen.max_connections", 4_096, &(1..=1_000_000)),
            max_connections_per_network: reader.integer(
                "listen.max_connections_per_network",
                0,
                &(0..=1_000_000)
            ),
            tls: key_pair(reader, "listen.tls.cert", "listen.tls.key"),
        } then {
            let is_given = proxy_protocol.as_ref().is_some_and(|listeners| !listeners.is_empty());
            if is_given && trusted_proxies.as_ref().is_some_and(Vec::is_empty) {
                let phrase =
                    "is spoken by listen.trusted_proxies alone, and there are none; write both or neither";
                reader.report(&["listen.proxy_protocol", "listen.trusted_proxies"], phrase);
            }
            if max_connections_per_network == Some(1) {
                let phrase =
                    "is 1: a client that opens its next connection while its last one is being closed is turned away; write more";
                reader.warn(&["listen.max_connections_per_network"], phrase);
            }
            let lists = [
                ("listen.gateway", "gateway", gateway.as_ref()),
                ("listen.owners", "owners", owners.as_ref()),
                ("listen.authz", "authz", authz.as_ref()),
            ];
            refuse_overlaps(reader, api, lists, admin);
        })
    }
}

/// Each two listeners of which the second would find its address taken.
fn refuse_overlaps(
    reader: &mut Reader,
    api: Option<SocketAddr>,
    lists: [(&'static str, &str, Option<&Vec<SocketAddr>>); 3],
    admin: Option<SocketAddr>,
) {
    let listed = lists.into_iter().flat_map(|(path, name, addresses)| {
        let numbered = addresses.into_iter().flatten().zip(1_usize..);
        numbered.map(move |(address, number)| (path, format!("{name} item {number}"), *address))
    });
    let mut before: Vec<(&'static str, String, SocketAddr)> = Vec::new();
    let api = api.map(|address| ("listen.api", "api".to_owned(), address));
    let admin = admin.map(|address| ("listen.admin", "admin".to_owned(), address));
    for (path, name, address) in api.into_iter().chain(listed).chain(admin) {
        let overlapping = before.iter().filter(|(_, _, other)| overlap(*other, address));
        for (other_path, other_name, other) in overlapping {
            let phrase = format!(
                "{other_name} is {other} and {name} is {address}; write two addresses that do not overlap"
            );
            reader.report(&[path, other_path], phrase);
        }
        before.push((path, name, address));
    }
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        if let Some(port) = too_large(text) {
            return format!(
                "is {}, and the port {port} is too large; write one up to {}",
                quoted(text),
                u16::MAX
            );
        }
        format!(
            "is {}; write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"",
            quoted(text)
        )
    })
}

/// The port of an address, if it is a number and nothing else is wrong.
fn too_large(text: &str) -> Option<&str> {
    let (host, port) = text.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && format!("{host}:0").parse::<SocketAddr>().is_ok() && port.parse::<u16>().is_err())
        .then_some(port)
}

/// A header by which proxies say how a request came.
fn header(text: &str) -> Result<Box<str>, String> {
    if TrustedHeaders::may_name(text) {
        return Ok(text.into());
    }
    Err(format!(
        "is {}; write a header of proxies: \"Forwarded\", \"X-Forwarded-...\", or one of {}",
        quoted(text),
        OF_PROXIES.join(", ")
    ))
}

/// A network, or an address that is a network of its own. Bits behind the prefix do not count.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network
        .map(|network| network.trunc())
        .map_err(|_| format!("is {}; write an IP address or a network, such as \"10.0.0.0/8\"", quoted(text)))
}

/// True when the second of two listeners would find its address taken. Port 0 is a free port each time, and `[::]`
/// listens to IPv4 too.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = |ip: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || one.is_ipv4() == other.is_ipv4());
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || everywhere(one.ip()) || everywhere(other.ip()))
}
