//! `[listen]`: where requests come in.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::config::choice::choice;
use crate::config::files::key_pair;
use crate::config::reader::Reader;
use crate::config::written::quoted;
use crate::domain::tenant::KeyPair;

/// How many addresses the gateway may listen on.
const GATEWAYS_MAX: usize = 16;

/// How many networks of trusted proxies there may be.
const TRUSTED_PROXIES_MAX: usize = 1_024;

/// A listener of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// That of the verification API.
    Api,
    /// That of the gateway.
    Gateway,
}

/// Addresses to listen on, and whom to believe about clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Where the verification API is answered.
    pub api: SocketAddr,
    /// Where requests to tenants are answered; empty: there is no gateway. At most 16.
    pub gateway: Vec<SocketAddr>,
    /// Where metrics are answered.
    pub admin: SocketAddr,
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Listeners on which these proxies, and nobody else, speak the PROXY protocol.
    pub proxy_protocol: Vec<Listener>,
    /// How many connections each listener holds; 1 to 1,000,000.
    pub max_connections: u32,
    /// How many of them a network of clients may hold; up to 1,000,000, and 0 is no number of its own.
    pub max_connections_per_network: u32,
    /// What API and gateway show to clients; nothing: they do not speak TLS.
    pub tls: Option<KeyPair>,
}

impl Listen {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let api = reader.text("listen.api", "127.0.0.1:8080", socket_address);
        let gateway = reader.texts("listen.gateway", &[], &(0..=GATEWAYS_MAX), socket_address);
        let admin = reader.text("listen.admin", "127.0.0.1:9090", socket_address);
        let trusted_proxies =
            reader.texts("listen.trusted_proxies", &[], &(0..=TRUSTED_PROXIES_MAX), network);
        let listeners = choice(&[("api", Listener::Api), ("gateway", Listener::Gateway)]);
        let proxy_protocol = reader.texts("listen.proxy_protocol", &[], &(0..=2), listeners);
        let is_given = proxy_protocol.as_ref().is_some_and(|listeners| !listeners.is_empty());
        if is_given && trusted_proxies.as_ref().is_some_and(Vec::is_empty) {
            let phrase =
                "is spoken by listen.trusted_proxies alone, and there are none; write both or neither";
            reader.report(&["listen.proxy_protocol", "listen.trusted_proxies"], phrase);
        }
        let max_connections = reader.integer("listen.max_connections", 4_096, &(1..=1_000_000));
        let max_connections_per_network =
            reader.integer("listen.max_connections_per_network", 0, &(0..=1_000_000));
        let tls = key_pair(reader, "listen.tls.cert", "listen.tls.key");
        refuse_overlaps(reader, api, gateway.as_deref().unwrap_or_default(), admin);
        Some(Self {
            api: api?,
            gateway: gateway?,
            admin: admin?,
            trusted_proxies: trusted_proxies?,
            proxy_protocol: proxy_protocol?,
            max_connections: max_connections?,
            max_connections_per_network: max_connections_per_network?,
            tls: tls?,
        })
    }
}

/// Each two listeners of which the second would find its address taken.
fn refuse_overlaps(
    reader: &mut Reader,
    api: Option<SocketAddr>,
    gateway: &[SocketAddr],
    admin: Option<SocketAddr>,
) {
    let gateways = gateway.iter().zip(1_usize..);
    let gateways =
        gateways.map(|(address, number)| ("listen.gateway", format!("gateway item {number}"), *address));
    let mut before: Vec<(&'static str, String, SocketAddr)> = Vec::new();
    let api = api.map(|address| ("listen.api", "api".to_owned(), address));
    let admin = admin.map(|address| ("listen.admin", "admin".to_owned(), address));
    for (path, name, address) in api.into_iter().chain(gateways).chain(admin) {
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
        format!(
            "is {}; write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"",
            quoted(text)
        )
    })
}

/// A network, or an address that is a network of its own. Bits behind the prefix do not count.
fn network(text: &str) -> Result<IpNet, String> {
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
