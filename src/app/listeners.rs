//! Addresses to listen on.

use std::io;
use std::net::SocketAddr;

use pingora::listeners::ListenerConfig;
use pingora::protocols::l4::stream::L4BufferSettings;
use tokio::net::TcpSocket;

use crate::app::StartError;

/// How much of a connection is read or written at once, in bytes. A request and an answer of ours fit into a few KiB; the
/// framework's own buffers make an idle connection cost 80.
const CONNECTION_BUFFER_BYTES: usize = 8 * 1024;

/// A listener, or why there can be none. The server framework ends the process with a backtrace when it can't listen;
/// found out before, it is a sentence.
pub(super) fn listener(address: SocketAddr) -> Result<ListenerConfig, StartError> {
    bound(address).map_err(|cause| StartError::Listen { address, cause })?;
    let buffers = L4BufferSettings::new(CONNECTION_BUFFER_BYTES, CONNECTION_BUFFER_BYTES);
    Ok(ListenerConfig::tcp(address.to_string()).l4_buffer(buffers))
}

/// A socket that is bound and does not listen: clients are refused until the server listens, and none is reset.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_address_is_checked_without_taking_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(bound(address).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        let _bound = bound(address).unwrap();
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
