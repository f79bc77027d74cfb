//! Reads the header of the PROXY protocol in front of a connection, to its last byte and no further, so that TLS or HTTP finds
//! its own first byte next.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::serve::proxy_header::{Found, V1_BYTES_MAX, parse};

/// How long a header may take to arrive.
const TIME_MAX: Duration = Duration::from_secs(10);

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
    timeout(TIME_MAX, header).await.ok()?
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::client_of;

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
