//! The clients of a listener: which address is behind a connection, and how many connections a network may hold.
//!
//! Without the limit `somebody_who_holds_nothing_gets_a_place_while_one_is_free` fails.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use ipnet::IpNet;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::domain::ClientNet;
use crate::serve::proxy_header::{Found, V1_BYTES_MAX, parse};
use crate::sharded::{Counted, Counts, SHARE};
use crate::wire::client_ip::is_trusted;

/// The rules of a listener about its clients.
#[derive(Debug, Clone)]
pub(crate) struct ClientRules {
    /// Balancers. They speak for others, and hold as many connections as there are.
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// True if each connection comes from a balancer and begins with a header of the PROXY protocol.
    pub(crate) uses_proxy_protocol: bool,
    /// The most connections of a network; 0 is no limit beside the share.
    pub(crate) per_network_max: u32,
}

/// The clients of a listener.
pub(super) struct Clients {
    rules: ClientRules,
    networks: Arc<Counts<ClientNet>>,
}

impl Clients {
    pub(super) fn new(rules: ClientRules) -> Self {
        Self { rules, networks: Arc::default() }
    }

    /// The address of the client: the peer's, or the one that a header of the PROXY protocol names. `None`: the connection
    /// may not be used.
    pub(super) async fn address(&self, stream: &mut TcpStream, peer: SocketAddr) -> Option<SocketAddr> {
        if !self.rules.uses_proxy_protocol {
            return Some(peer);
        }
        // Anybody else could name any client.
        if !is_trusted(peer.ip(), &self.rules.trusted_proxies) {
            return None;
        }
        client_of(stream, peer).await
    }

    /// A place among the connections of the client's network, in a listener that has so many free, this one included.
    /// Those of balancers are not counted.
    /// Error: the network holds as many as it may.
    pub(super) fn place(&self, client: SocketAddr, free: usize) -> Result<Option<Counted<ClientNet>>, ()> {
        if is_trusted(client.ip(), &self.rules.trusted_proxies) {
            return Ok(None);
        }
        let own = if self.rules.per_network_max == 0 { u32::MAX } else { self.rules.per_network_max };
        let share = u32::try_from(free).unwrap_or(u32::MAX).saturating_mul(SHARE);
        self.networks.take(ClientNet::of(client.ip()), own.min(share)).map(Some).ok_or(())
    }
}

/// How long a header may take to arrive.
const PROXY_HEADER_TIME_MAX: Duration = Duration::from_secs(10);

/// The client behind a balancer, or the balancer itself where it speaks for nobody. `None` for anything but a whole header
/// in time.
pub(super) async fn client_of(stream: &mut TcpStream, balancer: SocketAddr) -> Option<SocketAddr> {
    let header = async {
        let mut header = Vec::with_capacity(V1_BYTES_MAX);
        loop {
            match parse(&header)? {
                Found::Whole(client) => return Some(client.unwrap_or(balancer)),
                Found::More(count) => {
                    let read = (&mut *stream).take(count as u64).read_to_end(&mut header).await;
                    read.ok().filter(|read| *read == count)?;
                }
            }
        }
    };
    timeout(PROXY_HEADER_TIME_MAX, header).await.ok()?
}

#[cfg(test)]
mod tests {
    mod clients {
        use proptest::prelude::*;

        use super::super::{ClientRules, Clients};

        fn clients(per_network_max: u32) -> Clients {
            let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
            Clients::new(ClientRules { trusted_proxies, uses_proxy_protocol: false, per_network_max })
        }

        /// How many of these addresses get a place, one after the other, where there is room for so many.
        fn served(clients: &Clients, room: usize, addresses: &[&str]) -> usize {
            let mut held = Vec::new();
            for address in addresses {
                let address = format!("{address}:1").parse().unwrap();
                if held.len() < room {
                    held.extend(clients.place(address, room - held.len()));
                }
            }
            held.len()
        }

        // threat: All connections or descriptors taken
        #[test]
        fn a_network_takes_three_quarters_at_most_and_another_its_share_of_the_rest() {
            assert_eq!(served(&clients(0), 8, &["192.0.2.1"; 100]), 6);
            assert_eq!(served(&clients(0), 4_096, &["192.0.2.1"; 5_000]), 3_072);
            let both = [["192.0.2.1"; 100], ["192.0.2.2"; 100]].concat();
            assert_eq!(served(&clients(0), 100, &both), 75 + 19);
            assert_eq!(served(&clients(0), 1, &["192.0.2.1"; 2]), 1);
            assert_eq!(served(&clients(5), 100, &both), 10);
        }

        // threat: All connections or descriptors taken
        #[test]
        fn the_addresses_of_a_64_are_one_network_and_balancers_are_not_counted() {
            let one = ["[2001:db8:1:2::1]", "[2001:db8:1:2::2]", "[2001:db8:1:2:ffff::]"];
            assert_eq!(served(&clients(2), 100, &one), 2);
            assert_eq!(
                served(&clients(2), 100, &["[2001:db8:1:2::1]", "[2001:db8:1:3::1]", "[2001:db8:1:4::1]"]),
                3
            );
            assert_eq!(served(&clients(2), 100, &["[::ffff:192.0.2.1]", "192.0.2.1", "192.0.2.1"]), 2);
            assert_eq!(served(&clients(2), 100, &["10.1.2.3"; 200]), 100);
        }

        proptest! {
            // threat: All connections or descriptors taken
            #[test]
            fn somebody_who_holds_nothing_gets_a_place_while_one_is_free(
                rounds in prop::collection::vec((0..5_u8, any::<bool>()), 0..300),
                room in 1..40_usize,
            ) {
                let (clients, mut held) = (clients(0), Vec::new());
                for (network, leaves) in rounds {
                    if leaves {
                        held.pop();
                    } else if held.len() < room {
                        held.extend(clients.place(([192, 0, 2, network], 1).into(), room - held.len()));
                    }
                    let stranger = clients.place(([198, 51, 100, 1], 1).into(), room - held.len());
                    prop_assert_eq!(stranger.is_ok(), held.len() < room);
                }
            }
        }
    }

    mod proxy_protocol {
        use tokio::io::AsyncWriteExt;
        use tokio::net::{TcpListener, TcpStream};

        use super::super::client_of;

        // threat: Forged PROXY headers
        #[tokio::test(start_paused = true)]
        async fn a_header_that_stops_arriving_is_given_up() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            for (bytes, ends) in [("", false), ("PROXY TCP4 1.2.3.4", false), ("PROXY TCP4 1.2.3.4", true)] {
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                client.write_all(bytes.as_bytes()).await.unwrap();
                let (mut stream, peer) = listener.accept().await.unwrap();
                let _open = if ends { None } else { Some(client) };
                assert_eq!(client_of(&mut stream, peer).await, None, "{bytes} {ends}");
            }
        }
    }
}
