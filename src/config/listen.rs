//! `[listen]`: where requests come in.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::config::reader::Reader;
use crate::config::written::quoted;

/// How many networks of trusted proxies there may be.
const TRUSTED_PROXIES_MAX: usize = 1_024;

/// Addresses to listen on, and whom to believe about clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Where the verification API is answered.
    pub api: SocketAddr,
    /// Where metrics are answered.
    pub admin: SocketAddr,
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
}

impl Listen {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        let api = reader.text("listen.api", "127.0.0.1:8080", socket_address);
        let admin = reader.text("listen.admin", "127.0.0.1:9090", socket_address);
        let trusted_proxies =
            reader.texts("listen.trusted_proxies", &[], &(0..=TRUSTED_PROXIES_MAX), network);
        if let (Some(api), Some(admin)) = (api, admin)
            && overlap(api, admin)
        {
            let phrase =
                format!("api is {api} and admin is {admin}; write two addresses that do not overlap");
            reader.report(&["listen.admin", "listen.api"], phrase);
        }
        Some(Self { api: api?, admin: admin?, trusted_proxies: trusted_proxies? })
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

/// True when the second of two listeners would find its address taken. Port 0 is a free port each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = |ip: IpAddr| ip.is_unspecified() && one.is_ipv4() == other.is_ipv4();
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || everywhere(one.ip()) || everywhere(other.ip()))
}
