//! Who is at the other end of the connection, as far as limits per client IP are concerned.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A client IP as limits see it: an IPv4 address, or the /64 network of an IPv6 address, because one subscriber holds
/// at least that many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientNet(IpAddr);

impl ClientNet {
    /// Nobody: a request that counts for another than the network that it comes from.
    pub const NOBODY: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// The client that this address belongs to.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(IpAddr::V4(v4)),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Self(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
        }
    }

    /// The address, or the first one of the network: how stores write it.
    pub const fn address(self) -> IpAddr {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::ClientNet;

    fn net(text: &str) -> ClientNet {
        ClientNet::of(text.parse().unwrap())
    }

    // threat: Forged identity or forwarding headers
    #[test]
    fn an_ipv6_subscriber_is_one_client_whatever_address_of_its_network_it_uses() {
        assert_eq!(net("2001:db8:1:2::1"), net("2001:db8:1:2:ffff::9"));
        assert_ne!(net("2001:db8:1:2::1"), net("2001:db8:1:3::1"));
    }

    #[test]
    fn an_ipv4_address_is_one_client_however_it_is_written() {
        assert_eq!(net("192.0.2.1"), net("::ffff:192.0.2.1"));
        assert_ne!(net("192.0.2.1"), net("192.0.2.2"));
    }
}
