//! A running process tells `tiergate health` the URL of its API: the configuration may have changed since the start, and the
//! file system may be read-only.
//!
//! The process binds an abstract Unix socket whose name holds a hash of the configuration's path and of the overrides of
//! `[listen]`, the id of the process, and the URL. The kernel lists such names in `/proc/net/unix`, and drops them when the
//! process ends.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixDatagram};
use std::path::Path;

use crate::app::source::environment;
use crate::config::listen::Listen;

/// Says where the API answers for as long as it lives.
pub(crate) struct Presence {
    _socket: UnixDatagram,
}

impl Presence {
    /// Of a process with the configuration at this path.
    #[cfg(target_os = "linux")]
    pub(crate) fn announce(path: &Path, listen: &Listen) -> io::Result<Self> {
        let name = format!("{}{}-{}", prefix(path), std::process::id(), api_url(listen));
        let address = net::SocketAddr::from_abstract_name(name)?;
        Ok(Self { _socket: UnixDatagram::bind_addr(&address)? })
    }

    /// Only Linux has such sockets.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn announce(_: &Path, _: &Listen) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The URL of the API of the process with the configuration at this path; `None` if none is known. During an upgrade there
/// are two, and the newer one counts.
pub(crate) fn find(path: &Path) -> Option<String> {
    let sockets = std::fs::read("/proc/net/unix").ok()?;
    let (sockets, prefix) = (String::from_utf8_lossy(&sockets), format!(" @{}", prefix(path)));
    let named = sockets.lines().filter_map(|line| line.split_once(&prefix)?.1.split_once('-'));
    let (_, url) = named.max_by_key(|(process, _)| process.parse::<u32>().unwrap_or_default())?;
    Some(url.to_owned())
}

/// The API's address as this machine reaches it.
pub(crate) fn api_url(listen: &Listen) -> String {
    let scheme = if listen.tls.is_some() { "https" } else { "http" };
    let ip = match listen.api.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    format!("{scheme}://{}", SocketAddr::new(ip, listen.api.port()))
}

/// The beginning of a configuration's names. Containers that share a network have process numbers of their own.
fn prefix(path: &Path) -> String {
    let of_listen = |(name, _): &(String, String)| name.starts_with("TIERGATE__LISTEN__");
    let overrides: BTreeMap<_, _> = environment().filter(of_listen).collect();
    let processes = std::fs::read_link("/proc/self/ns/pid").ok();
    let mut hasher = DefaultHasher::new();
    (std::path::absolute(path).ok(), overrides, processes).hash(&mut hasher);
    format!("tiergate-{:016x}-", hasher.finish())
}
