//! Addresses that no upstream may have: those of our own listeners, link-local ones, and those outside of the networks that
//! a tenant is held to.
//!
//! Asked when a configuration is read, and for each address that a name of an upstream leads to; never for a request. And the
//! addresses that a name of a stranger's may have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Link-local addresses, where clouds hand out credentials, and the addresses beside them where some do so.
const LINK_LOCAL: [IpNet; 6] = [
    v4([169, 254, 0, 0], 16),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    // AWS.
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    // Google.
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    // Alibaba.
    v4([100, 100, 100, 200], 32),
    // Azure.
    v4([168, 63, 129, 16], 32),
];

/// Addresses that are given out to nobody in particular (RFC 6890), to no single machine, or lead elsewhere.
const SPECIAL: [IpNet; 17] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 3),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

/// The addresses of IPv6 that are given out.
const GIVEN_OUT: IpNet = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// True if an address may be that of a server of strangers: it is no private, loopback or link-local one.
pub(crate) fn is_public(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_special = LINK_LOCAL.iter().chain(&SPECIAL).any(|net| net.contains(&ip));
    !is_special && (ip.is_ipv4() || GIVEN_OUT.contains(&ip))
}

/// The addresses that upstreams of a tenant may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AddressRules {
    /// The addresses that this process listens on.
    pub(crate) listeners: Arc<[SocketAddr]>,
    /// True if upstreams may be link-local.
    pub(crate) allow_link_local: bool,
    /// The networks that all of them lie in; `None`: anywhere.
    pub(crate) networks: Option<Arc<[IpNet]>>,
}

/// Why an upstream may not have an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressRefused {
    /// The address reaches the listener here.
    #[error("where this gateway itself listens ({0})")]
    Own(SocketAddr),
    #[error("a link-local or metadata address, where clouds hand out credentials (gateway.allow_link_local)")]
    LinkLocal,
    /// Outside of the tenant's networks.
    #[error("outside of the networks that [[tenants_rules]] allow")]
    Outside,
}

impl AddressRules {
    /// Refuses an address that reaches this process itself, or that the rules do not allow.
    pub(crate) fn check(&self, address: SocketAddr) -> Result<(), AddressRefused> {
        let ip = reached(address.ip());
        if let Some(listener) = self.own(ip, address.port()) {
            return Err(AddressRefused::Own(listener));
        }
        if !self.allow_link_local && LINK_LOCAL.iter().any(|net| net.contains(&ip)) {
            return Err(AddressRefused::LinkLocal);
        }
        let is_inside = |networks: &Arc<[IpNet]>| networks.iter().any(|net| net.contains(&ip));
        if self.networks.as_ref().is_none_or(is_inside) { Ok(()) } else { Err(AddressRefused::Outside) }
    }

    /// The same for the host of an upstream, as far as that is known without asking the network: of names only `localhost` is
    /// known, and only that it is this machine.
    pub(crate) fn check_host(&self, host: &str, port: u16) -> Result<(), AddressRefused> {
        if let Ok(ip) = host.parse() {
            return self.check(SocketAddr::new(ip, port));
        }
        if host.rsplit('.').next() != Some("localhost") {
            return Ok(());
        }
        let ips = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let own = ips.into_iter().find_map(|ip| self.own(ip, port));
        own.map_or(Ok(()), |listener| Err(AddressRefused::Own(listener)))
    }

    /// True if an address with this port may become that of a listener: this machine may get further addresses.
    pub(crate) fn may_be_own(&self, port: u16) -> bool {
        self.listeners.iter().any(|listener| listener.port() == port)
    }

    /// The listener of ours that is reached by this address.
    fn own(&self, ip: IpAddr, port: u16) -> Option<SocketAddr> {
        let takes = |listener: &&SocketAddr| {
            let at = listener.ip().to_canonical();
            let is_everywhere = at.is_unspecified() && (at.is_ipv6() || ip.is_ipv4());
            listener.port() == port && (at == ip || (is_everywhere && is_of_this_machine(ip)))
        };
        self.listeners.iter().find(takes).copied()
    }
}

/// The address that a connection to this one reaches: an unspecified one is this machine.
pub(crate) fn reached(ip: IpAddr) -> IpAddr {
    let ip = ip.to_canonical();
    match ip {
        _ if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// True if an address is this machine's: it would speak to itself from that very address. No packet is sent.
fn is_of_this_machine(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let speaks_from = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((ip, 1))?;
        socket.local_addr()
    };
    ip.is_loopback() || speaks_from().is_ok_and(|from| from.ip() == ip)
}

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::{AddressRefused, AddressRules, is_of_this_machine, is_public};
    use crate::domain::Upstream;

    fn rules(listener: &str) -> AddressRules {
        AddressRules { listeners: [listener.parse().unwrap()].into(), ..AddressRules::default() }
    }

    #[test]
    fn an_upstream_that_is_this_listener_is_known_by_every_name_that_needs_no_look_up() {
        for (listener, own, others) in [
            (
                "127.0.0.1:8000",
                "127.0.0.1 localhost api.localhost 0.0.0.0 [::ffff:127.0.0.1] [::ffff:0.0.0.0]",
                "127.0.0.2 [::1] [::] 10.0.0.1 localhost.example example",
            ),
            ("127.0.0.2:8000", "127.0.0.2 https://127.0.0.2", "127.0.0.1 localhost 0.0.0.0"),
            ("[::1]:8000", "[::1] localhost [::]", "127.0.0.1 0.0.0.0"),
            ("0.0.0.0:8000", "127.0.0.1 127.9.9.9 localhost 0.0.0.0", "[::1] 192.0.2.1 api.example"),
            ("[::]:8000", "127.0.0.1 localhost 0.0.0.0 [::1] [::]", "192.0.2.1 [2001:db8::1]"),
            ("192.0.2.1:8000", "192.0.2.1 h2c://192.0.2.1", "127.0.0.1 localhost 192.0.2.2"),
        ] {
            for (hosts, expected) in [(own, true), (others, false)] {
                for host in hosts.split(' ') {
                    let reaches = |port| {
                        let upstream = Upstream::parse(&format!("{host}:{port}")).unwrap();
                        rules(listener).check_host(&upstream.host, upstream.port).is_err()
                    };
                    assert_eq!((reaches(8000), reaches(8001)), (expected, false), "{host} and {listener}");
                }
            }
        }
    }

    // threat: Own listeners or cloud metadata as upstreams
    #[test]
    fn link_local_and_metadata_addresses_are_refused_in_every_form_unless_they_are_allowed() {
        let closed = rules("127.0.0.1:8000");
        let open = AddressRules { allow_link_local: true, ..closed.clone() };
        for (ip, is_refused) in [
            ("169.254.169.254", true),
            ("169.254.0.1", true),
            ("::ffff:169.254.169.254", true),
            ("fe80::1", true),
            ("febf::1", true),
            ("fd00:ec2::254", true),
            ("fd20:ce::254", true),
            ("100.100.100.200", true),
            ("168.63.129.16", true),
            ("169.253.255.255", false),
            ("fec0::1", false),
            ("fd00::1", false),
            ("10.0.0.1", false),
        ] {
            let address = SocketAddr::new(ip.parse().unwrap(), 80);
            let expected = if is_refused { Err(AddressRefused::LinkLocal) } else { Ok(()) };
            assert_eq!((closed.check(address), open.check(address)), (expected, Ok(())), "{ip}");
        }
    }

    // threat: Somebody poses as a bot, or has its directory be an inner address
    #[test]
    fn a_server_of_strangers_has_no_private_loopback_or_link_local_address() {
        for (ips, expected) in [
            (
                "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.0 172.15.0.1 172.32.0.0 192.167.1.1 223.255.255.255",
                true,
            ),
            ("2606:4700::1111 2a00:1450:4001::1 2001:4860::8888 ::ffff:1.1.1.1", true),
            (
                "0.0.0.0 10.0.0.1 100.64.0.1 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1 172.31.255.255",
                false,
            ),
            (
                "192.0.0.1 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.0.1 198.51.100.1 203.0.113.1",
                false,
            ),
            ("224.0.0.1 240.0.0.1 255.255.255.255 100.100.100.200 168.63.129.16", false),
            (
                ":: ::1 ::ffff:10.0.0.1 ::ffff:127.0.0.1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 64:ff9b::a00:1",
                false,
            ),
            ("2001::1 2001:db8::1 2002:a00:1::1 3fff::1 ::a00:1 100::1 4000::1", false),
        ] {
            for ip in ips.split(' ') {
                assert_eq!(is_public(ip.parse().unwrap()), expected, "{ip}");
            }
        }
    }

    #[test]
    fn an_address_outside_of_the_networks_is_refused_and_a_listener_within_them_too() {
        let networks = ["10.1.0.0/16", "127.0.0.0/8"].map(|net| net.parse().unwrap());
        let rules = AddressRules { networks: Some(networks.into()), ..rules("127.0.0.1:8000") };
        let check = |address: &str| rules.check(address.parse().unwrap());
        assert_eq!(check("10.1.2.3:80"), Ok(()));
        assert_eq!(check("[::ffff:10.1.2.3]:80"), Ok(()));
        assert_eq!(check("10.2.0.1:80"), Err(AddressRefused::Outside));
        assert_eq!(check("[2001:db8::1]:80"), Err(AddressRefused::Outside));
        assert_eq!(check("127.0.0.1:8000"), Err(AddressRefused::Own("127.0.0.1:8000".parse().unwrap())));
    }

    #[test]
    fn the_addresses_of_this_machines_interfaces_are_its_own() {
        let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap();
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        let local = lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL");
        let own: Vec<IpAddr> =
            local.map(|pair| pair[0].trim_start_matches("|-- ").parse().unwrap()).collect();
        assert!(!own.is_empty() && own.iter().all(|ip| is_of_this_machine(*ip)), "{own:?}");
        assert!(
            !is_of_this_machine("192.0.2.1".parse().unwrap())
                && !is_of_this_machine("2001:db8::1".parse().unwrap())
        );
    }
}
