//! Where Redis is: one server, servers behind Sentinels, or a cluster. Such a URL may hold a password, so only its scheme
//! and hosts may be shown.

use std::net::{IpAddr, Ipv6Addr};
use std::{collections::HashSet, fmt, str::FromStr};

use crate::domain::secret::Secret;

/// The port of a server when none is written.
const PORT: u16 = 6_379;

/// The port of a Sentinel when none is written.
const SENTINEL_PORT: u16 = 26_379;

/// How many hosts one URL may name.
pub const REDIS_HOSTS_MAX: usize = 64;

/// Why a text is not the URL of a Redis. Says nothing of the text but hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotARedisUrl {
    /// It has another form.
    #[error("it is not a redis://, redis-sentinel:// or redis+cluster:// URL, nor one of them with rediss")]
    Malformed,
    /// One Sentinel would have two votes.
    #[error("it names the Sentinel {0} twice")]
    SentinelTwice(RedisHost),
}

/// One host and its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RedisHost {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl RedisHost {
    /// Reads `host:port` as servers write it: IPv6 may stand without brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        (!host.is_empty()).then_some(())?;
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// How the servers are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisLayout {
    /// One server.
    Single(RedisHost),
    /// The master that the Sentinels name.
    Sentinel {
        /// Where the Sentinels are; at least one, and none twice.
        sentinels: Vec<RedisHost>,
        /// Under which name they know the master.
        service: String,
    },
    /// A cluster.
    Cluster {
        /// Some of its nodes; at least one.
        seeds: Vec<RedisHost>,
    },
}

/// Where Redis is and how to log in. `Debug` and `Display` show scheme and hosts only.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// How the servers are found.
    pub layout: RedisLayout,
    /// True if connections are encrypted.
    pub tls: bool,
    /// The user to log in as; nothing: the server's default one.
    pub user: Option<String>,
    /// The password to log in with.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: u32,
}

impl RedisUrl {
    /// Parses a URL.
    /// Error: [`NotARedisUrl`] when a part is missing, of another form, more than the scheme allows, or there twice.
    pub fn parse(text: &str) -> Result<Self, NotARedisUrl> {
        let url = Self::read(text).ok_or(NotARedisUrl::Malformed)?;
        if let RedisLayout::Sentinel { sentinels, .. } = &url.layout
            && let Some(twice) = named_twice(sentinels)
        {
            return Err(NotARedisUrl::SentinelTwice(twice.clone()));
        }
        Ok(url)
    }

    fn read(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        if rest.bytes().any(|byte| byte <= b' ' || matches!(byte, b'\\' | b'#' | b'?' | 0x7f)) {
            return None;
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let [user, password] = [decoded(user)?, decoded(password)?];
        let [user, password] = [user, password].map(|text| Some(text).filter(|text| !text.is_empty()));
        let (layout, database) = layout(scheme, hosts, path)?;
        let (tls, password) = (scheme.starts_with("rediss"), password.map(Secret::new));
        Some(Self { layout, tls, user, password, database })
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, hosts) = match &self.layout {
            RedisLayout::Single(host) => ("", std::slice::from_ref(host)),
            RedisLayout::Sentinel { sentinels, .. } => ("-sentinel", sentinels.as_slice()),
            RedisLayout::Cluster { seeds } => ("+cluster", seeds.as_slice()),
        };
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        write!(out, "redis{}{kind}://{}", if self.tls { "s" } else { "" }, hosts.join(","))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RedisUrl({self})")
    }
}

impl fmt::Display for RedisHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(out, "[{}]:{}", self.host, self.port)
        } else {
            write!(out, "{}:{}", self.host, self.port)
        }
    }
}

fn layout(scheme: &str, hosts: &str, path: &str) -> Option<(RedisLayout, u32)> {
    match scheme {
        "redis" | "rediss" => Some((RedisLayout::Single(host(hosts, PORT)?), database(path)?)),
        "redis-sentinel" | "rediss-sentinel" => {
            let (service, number) = path.split_once('/').unwrap_or((path, ""));
            let service = decoded(service).filter(|service| !service.is_empty())?;
            let sentinels = all_hosts(hosts, SENTINEL_PORT)?;
            Some((RedisLayout::Sentinel { sentinels, service }, database(number)?))
        }
        // A cluster has no other database than 0.
        "redis+cluster" | "rediss+cluster" if path.is_empty() => {
            Some((RedisLayout::Cluster { seeds: all_hosts(hosts, PORT)? }, 0))
        }
        _ => None,
    }
}

fn all_hosts(text: &str, default_port: u16) -> Option<Vec<RedisHost>> {
    let hosts: Option<Vec<_>> = text.split(',').map(|text| host(text, default_port)).collect();
    hosts.filter(|hosts| hosts.len() <= REDIS_HOSTS_MAX)
}

/// The first host that stood in the list before, however it is spelled. Two names of one host are not known to be one.
fn named_twice(hosts: &[RedisHost]) -> Option<&RedisHost> {
    let mut seen = HashSet::new();
    hosts.iter().find(|host| !seen.insert((in_one_spelling(&host.host), host.port)))
}

fn in_one_spelling(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

fn host(text: &str, default_port: u16) -> Option<RedisHost> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok())?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    if host.is_empty() || !(text.starts_with('[') || host.bytes().all(is_of_name)) {
        return None;
    }
    let port = match port {
        "" => default_port,
        port => number(port.strip_prefix(':')?).filter(|port| *port != 0)?,
    };
    Some(RedisHost { host: host.to_owned(), port })
}

fn database(path: &str) -> Option<u32> {
    if path.is_empty() { Some(0) } else { number(path).filter(|_| path.len() <= 5) }
}

/// A number without a sign.
fn number<T: FromStr>(digits: &str) -> Option<T> {
    digits.parse().ok().filter(|_| !digits.starts_with('+'))
}

/// Undoes percent-encoding. What must be encoded and is not is refused, because it may have been cut in the wrong place.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
            }
            b':' | b'@' | b'/' => return None,
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
