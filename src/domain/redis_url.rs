//! Where Redis is: one server, servers behind Sentinels, or a cluster. Such a URL may hold a password, so only its scheme
//! and hosts may be shown.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

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

    /// Whether this and the other are one host however they are spelled. Two names of one host are not known to be.
    fn is(&self, other: &Self) -> bool {
        self.port == other.port && in_one_spelling(&self.host) == in_one_spelling(&other.host)
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
    layout: RedisLayout,
    tls: bool,
    user: Option<String>,
    password: Option<Secret>,
    database: u32,
}

impl RedisUrl {
    /// Parses a URL.
    /// Error: [`NotARedisUrl`] when a part is missing, of another form, more than the scheme allows, or there twice.
    pub fn parse(text: &str) -> Result<Self, NotARedisUrl> {
        let (scheme, rest) = text.split_once("://").ok_or(NotARedisUrl::Malformed)?;
        if rest.bytes().any(|byte| byte <= b' ' || matches!(byte, b'\\' | b'#' | b'?' | 0x7f)) {
            return Err(NotARedisUrl::Malformed);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user_info, hosts) = match authority.rsplit_once('@') {
            Some((user_info, hosts)) => (Some(user_info), hosts),
            None => (None, authority),
        };
        let (user, password) = user_info.map_or(Ok((None, None)), credentials)?;
        let (layout, database) = layout(scheme, hosts, path)?;
        Ok(Self { layout, tls: scheme.starts_with("rediss"), user, password, database })
    }

    /// How the servers are found.
    pub const fn layout(&self) -> &RedisLayout {
        &self.layout
    }

    /// Whether connections are encrypted.
    pub const fn tls(&self) -> bool {
        self.tls
    }

    /// The user to log in as; nothing: the server's default one.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password to log in with.
    pub const fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// The number of the database.
    pub const fn database(&self) -> u32 {
        self.database
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

fn layout(scheme: &str, hosts: &str, path: &str) -> Result<(RedisLayout, u32), NotARedisUrl> {
    match scheme {
        "redis" | "rediss" => {
            let host = host(hosts, PORT)?;
            Ok((RedisLayout::Single(host), database(path)?))
        }
        "redis-sentinel" | "rediss-sentinel" => {
            let (service, number) = path.split_once('/').unwrap_or((path, ""));
            let service = decoded(service)?;
            if service.is_empty() {
                return Err(NotARedisUrl::Malformed);
            }
            let sentinels = all_hosts(hosts, SENTINEL_PORT)?;
            let database = database(number)?;
            match named_twice(&sentinels) {
                Some(twice) => Err(NotARedisUrl::SentinelTwice(twice.clone())),
                None => Ok((RedisLayout::Sentinel { sentinels, service }, database)),
            }
        }
        // A cluster has no other database than 0.
        "redis+cluster" | "rediss+cluster" if path.is_empty() => {
            Ok((RedisLayout::Cluster { seeds: all_hosts(hosts, PORT)? }, 0))
        }
        _ => Err(NotARedisUrl::Malformed),
    }
}

fn all_hosts(text: &str, default_port: u16) -> Result<Vec<RedisHost>, NotARedisUrl> {
    let hosts: Vec<RedisHost> =
        text.split(',').map(|text| host(text, default_port)).collect::<Result<_, _>>()?;
    if hosts.len() > REDIS_HOSTS_MAX { Err(NotARedisUrl::Malformed) } else { Ok(hosts) }
}

/// The first host that stood in the list before.
fn named_twice(hosts: &[RedisHost]) -> Option<&RedisHost> {
    let stood_before = |place, host: &RedisHost| hosts.iter().take(place).any(|other| other.is(host));
    hosts.iter().enumerate().find_map(|(place, host)| stood_before(place, host).then_some(host))
}

fn in_one_spelling(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

fn host(text: &str, default_port: u16) -> Result<RedisHost, NotARedisUrl> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(NotARedisUrl::Malformed)?;
            host.parse::<Ipv6Addr>().map_err(|_| NotARedisUrl::Malformed)?;
            let port = if port.is_empty() {
                None
            } else {
                Some(port.strip_prefix(':').ok_or(NotARedisUrl::Malformed)?)
            };
            (host, port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let spelled_like_a_name =
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    if host.is_empty() || (!text.starts_with('[') && !spelled_like_a_name) {
        return Err(NotARedisUrl::Malformed);
    }
    let port = match port {
        None => default_port,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port != 0).ok_or(NotARedisUrl::Malformed)?
        }
        Some(_) => return Err(NotARedisUrl::Malformed),
    };
    Ok(RedisHost { host: host.to_owned(), port })
}

fn database(path: &str) -> Result<u32, NotARedisUrl> {
    if path.is_empty() {
        return Ok(0);
    }
    if path.len() > 5 || !path.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotARedisUrl::Malformed);
    }
    path.parse().map_err(|_| NotARedisUrl::Malformed)
}

/// `user:password`, `:password` or `user`, each percent-encoded where it must be.
fn credentials(text: &str) -> Result<(Option<String>, Option<Secret>), NotARedisUrl> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (decoded(user)?, Some(decoded(password)?)),
        None => (decoded(text)?, None),
    };
    let user = Some(user).filter(|user| !user.is_empty());
    Ok((user, password.filter(|password| !password.is_empty()).map(Secret::new)))
}

/// Undoes percent-encoding. What must be encoded and is not is refused, because it may have been cut in the wrong place.
fn decoded(text: &str) -> Result<String, NotARedisUrl> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = digit().zip(digit()).ok_or(NotARedisUrl::Malformed)?;
                bytes.push(u8::try_from(high * 16 + low).map_err(|_| NotARedisUrl::Malformed)?);
            }
            b':' | b'@' | b'/' => return Err(NotARedisUrl::Malformed),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).map_err(|_| NotARedisUrl::Malformed)
}

#[cfg(test)]
mod tests;
