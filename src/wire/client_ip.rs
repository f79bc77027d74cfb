//! Whom a request comes from: the peer, unless the peer is a proxy that is trusted to say whom it speaks for.
//!
//! `X-Forwarded-For` is read from the right, where trusted proxies write, up to the first address that is none of
//! them. What stands further left was written by somebody who is not trusted, and is never looked at.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::domain::ClientNet;
use crate::http1::{Fields, name::Name};

/// The client that limits apply to.
pub(crate) fn client_of(peer: IpAddr, fields: &impl Fields, trusted: &[IpNet]) -> ClientNet {
    ClientNet::of(address_of(peer, fields, trusted))
}

/// The client's address, for logs.
pub(crate) fn address_of(peer: IpAddr, fields: &impl Fields, trusted: &[IpNet]) -> IpAddr {
    let trusts = |address: IpAddr| is_trusted(address, trusted);
    if trusted.is_empty() || !trusts(peer) {
        return peer.to_canonical();
    }
    let mut client = peer;
    for line in fields.values(Name::ForwardedFor).rev() {
        for hop in line.rsplit(|byte| *byte == b',') {
            // Whatever can't be read was not written by a proxy that works: then only the peer is sure.
            let Some(address) = parse_hop(hop) else { return peer.to_canonical() };
            client = address;
            if !trusts(address) {
                return client.to_canonical();
            }
        }
    }
    client.to_canonical()
}

/// True if an address is a proxy's that is believed.
pub(crate) fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    let address = address.to_canonical();
    trusted.iter().any(|net| net.contains(&address))
}

/// An address, or an address and a port, as proxies write them.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use ipnet::IpNet;

    use super::{ClientNet, client_of};

    fn client(peer: &str, chains: &[&str]) -> ClientNet {
        let trusted: Vec<IpNet> = ["10.0.0.0/8", "fd00::/8"].iter().map(|net| net.parse().unwrap()).collect();
        let mut headers = HeaderMap::new();
        for chain in chains {
            headers.append("x-forwarded-for", HeaderValue::from_str(chain).unwrap());
        }
        client_of(peer.parse().unwrap(), &headers, &trusted)
    }

    fn net(address: &str) -> ClientNet {
        ClientNet::of(address.parse().unwrap())
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_writes() {
        for chain in ["192.0.2.9", "10.0.0.1", "", "garbage", "192.0.2.1, 192.0.2.2"] {
            assert_eq!(client("198.51.100.7", &[chain]), net("198.51.100.7"), "{chain}");
        }
    }

    // threat: Forged identity or forwarding headers
    #[test]
    fn a_trusted_peer_is_believed_up_to_the_first_untrusted_hop_from_the_right() {
        for (chain, expected) in [
            (vec!["192.0.2.9"], "192.0.2.9"),
            (vec!["203.0.113.66, 192.0.2.9"], "192.0.2.9"),
            (vec!["203.0.113.66, 192.0.2.9, 10.1.1.1"], "192.0.2.9"),
            (vec!["203.0.113.66", "192.0.2.9, 10.1.1.1"], "192.0.2.9"),
            (vec!["192.0.2.9:4711"], "192.0.2.9"),
            (vec!["[2001:db8::1]:4711"], "2001:db8::2"),
            (vec!["[2001:db8::1]"], "2001:db8::1"),
            (vec!["::ffff:192.0.2.9"], "192.0.2.9"),
            (vec!["10.2.2.2, 10.1.1.1"], "10.2.2.2"),
            (vec![], "10.0.0.1"),
        ] {
            assert_eq!(client("10.0.0.1", &chain), net(expected), "{chain:?}");
        }
        assert_eq!(client("::ffff:10.0.0.1", &["192.0.2.9"]), net("192.0.2.9"));
    }

    // threat: Forged identity or forwarding headers
    #[test]
    fn a_hop_that_cannot_be_read_means_the_peer() {
        for chain in ["unknown", "192.0.2.9, ", "192.0.2.9, _hidden", "192.0.2.999"] {
            assert_eq!(client("10.0.0.1", &[chain]), net("10.0.0.1"), "{chain}");
        }
    }
}
