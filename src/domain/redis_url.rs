//! Where Redis is: one server, servers behind Sentinels, or a cluster. Such a URL may hold a password, so only its scheme
//! and hosts may be shown.

use std::fmt;

use crate::domain::secret::Secret;

/// The port of a server when none is written.
const PORT: u16 = 6_379;

/// The port of a Sentinel when none is written.
const SENTINEL_PORT: u16 = 26_379;

/// How many hosts one URL may name.
pub const REDIS_HOSTS_MAX: usize = 64;

/// The text is not the URL of a Redis. Says nothing of the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a redis://, redis-sentinel:// or redis+cluster:// URL, nor one of them with rediss")]
pub struct NotARedisUrl;

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
    #[must_use]
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
        /// Where the Sentinels are; at least one.
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
    ///
    /// # Errors
    ///
    /// [`NotARedisUrl`] when a part is missing, of another form, or more than the scheme allows.
    pub fn parse(text: &str) -> Result<Self, NotARedisUrl> {
        let (scheme, rest) = text.split_once("://").ok_or(NotARedisUrl)?;
        if rest.bytes().any(|byte| byte <= b' ' || matches!(byte, b'\\' | b'#' | b'?' | 0x7f)) {
            return Err(NotARedisUrl);
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
    #[must_use]
    pub const fn layout(&self) -> &RedisLayout {
        &self.layout
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub const fn tls(&self) -> bool {
        self.tls
    }

    /// The user to log in as; nothing: the server's default one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password to log in with.
    #[must_use]
    pub const fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// The number of the database.
    #[must_use]
    pub const fn database(&self) -> u32 {
        self.database
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, hosts) = match (&self.layout, self.tls) {
            (RedisLayout::Single(host), false) => ("redis", std::slice::from_ref(host)),
            (RedisLayout::Single(host), true) => ("rediss", std::slice::from_ref(host)),
            (RedisLayout::Sentinel { sentinels, .. }, false) => ("redis-sentinel", sentinels.as_slice()),
            (RedisLayout::Sentinel { sentinels, .. }, true) => ("rediss-sentinel", sentinels.as_slice()),
            (RedisLayout::Cluster { seeds }, false) => ("redis+cluster", seeds.as_slice()),
            (RedisLayout::Cluster { seeds }, true) => ("rediss+cluster", seeds.as_slice()),
        };
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        write!(out, "{scheme}://{}", hosts.join(","))
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
                return Err(NotARedisUrl);
            }
            let sentinels = all_hosts(hosts, SENTINEL_PORT)?;
            Ok((RedisLayout::Sentinel { sentinels, service }, database(number)?))
        }
        // A cluster has no other database than 0.
        "redis+cluster" | "rediss+cluster" if path.is_empty() => {
            Ok((RedisLayout::Cluster { seeds: all_hosts(hosts, PORT)? }, 0))
        }
        _ => Err(NotARedisUrl),
    }
}

fn all_hosts(text: &str, default_port: u16) -> Result<Vec<RedisHost>, NotARedisUrl> {
    let hosts: Vec<RedisHost> =
        text.split(',').map(|text| host(text, default_port)).collect::<Result<_, _>>()?;
    if hosts.len() > REDIS_HOSTS_MAX { Err(NotARedisUrl) } else { Ok(hosts) }
}

fn host(text: &str, default_port: u16) -> Result<RedisHost, NotARedisUrl> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(NotARedisUrl)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| NotARedisUrl)?;
            let port = if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(NotARedisUrl)?) };
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
        return Err(NotARedisUrl);
    }
    let port = match port {
        None => default_port,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port != 0).ok_or(NotARedisUrl)?
        }
        Some(_) => return Err(NotARedisUrl),
    };
    Ok(RedisHost { host: host.to_owned(), port })
}

fn database(path: &str) -> Result<u32, NotARedisUrl> {
    if path.is_empty() {
        return Ok(0);
    }
    if path.len() > 5 || !path.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotARedisUrl);
    }
    path.parse().map_err(|_| NotARedisUrl)
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
                let (high, low) = digit().zip(digit()).ok_or(NotARedisUrl)?;
                bytes.push(u8::try_from(high * 16 + low).map_err(|_| NotARedisUrl)?);
            }
            b':' | b'@' | b'/' => return Err(NotARedisUrl),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).map_err(|_| NotARedisUrl)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::{RedisHost, RedisLayout, RedisUrl};

    fn host(host: &str, port: u16) -> RedisHost {
        RedisHost { host: host.to_owned(), port }
    }

    #[test]
    fn each_scheme_names_its_layout() {
        let (a, b) = (host("a", 1), host("b", 2));
        let service = "mymaster".to_owned();
        for (text, layout, tls, database) in [
            ("redis://a:1", RedisLayout::Single(a.clone()), false, 0),
            ("redis://u:p@a:1/", RedisLayout::Single(a.clone()), false, 0),
            ("rediss://a:1/3", RedisLayout::Single(a.clone()), true, 3),
            ("redis://[::1]", RedisLayout::Single(host("::1", 6_379)), false, 0),
            (
                "redis-sentinel://u:p@a:1,b:2,c/mymaster/4",
                RedisLayout::Sentinel { sentinels: vec![a.clone(), b.clone(), host("c", 26_379)], service },
                false,
                4,
            ),
            ("redis+cluster://a:1,b:2", RedisLayout::Cluster { seeds: vec![a.clone(), b.clone()] }, false, 0),
            ("rediss+cluster://b:2", RedisLayout::Cluster { seeds: vec![b] }, true, 0),
        ] {
            let url = RedisUrl::parse(text).unwrap();
            assert_eq!((url.layout(), url.tls(), url.database()), (&layout, tls, database), "{text}");
        }
        let secured = RedisUrl::parse("rediss-sentinel://a,b/mymaster/4").unwrap();
        let plain = RedisUrl::parse("redis-sentinel://a,b/mymaster/4").unwrap();
        assert_eq!((secured.layout(), secured.database()), (plain.layout(), 4));
        assert!(secured.tls() && !plain.tls());
    }

    #[test]
    fn user_and_password_are_decoded() {
        for (text, user, password) in [
            ("redis://a", None, None),
            ("redis://user@a", Some("user"), None),
            ("redis://:pass@a", None, Some("pass")),
            ("redis://us%40er:p%3A%2fs@a", Some("us@er"), Some("p:/s")),
        ] {
            let url = RedisUrl::parse(text).unwrap();
            assert_eq!((url.user(), url.password().map(super::Secret::reveal)), (user, password), "{text}");
        }
    }

    #[test]
    fn debug_and_display_show_scheme_and_hosts_only() {
        for (text, shown) in [
            ("redis://user:SECRET@a/1", "redis://a:6379"),
            ("rediss://:SECRET@[::1]:7", "rediss://[::1]:7"),
            ("redis-sentinel://SECRET:SECRET@a,b/SECRET", "redis-sentinel://a:26379,b:26379"),
            ("rediss-sentinel://:SECRET@a/SECRET", "rediss-sentinel://a:26379"),
            ("redis+cluster://:SECRET@a,b:2", "redis+cluster://a:6379,b:2"),
            ("rediss+cluster://:SECRET@a", "rediss+cluster://a:6379"),
        ] {
            let url = RedisUrl::parse(text).unwrap();
            assert_eq!(format!("{url} {url:?}"), format!("{shown} RedisUrl({shown})"));
        }
    }

    #[test]
    fn what_is_not_such_a_url_is_refused() {
        for text in [
            "",
            "a:1",
            "http://a",
            "REDIS://a",
            "redis:/a",
            "redis://",
            "redis://a:0",
            "redis://a:65536",
            "redis://a:+1",
            "redis://a:",
            "redis://a/x",
            "redis://a/1/2",
            "redis://a/-1",
            "redis://a,b",
            "redis://a?x=1",
            "redis://a#1",
            "redis://a b",
            "redis://u:p:q@a",
            "redis://u:p@q@a",
            "redis://u:%4@a",
            "redis://u:%zz@a",
            "redis://u:%ff@a",
            "redis://[::1",
            "redis://[a]",
            "redis://[::1]x",
            "redis-sentinel://a",
            "rediss-sentinel://a/",
            "redisssentinel://a/m",
            "redis-sentinel://a/",
            "redis-sentinel://a,/m",
            "redis+cluster://a/1",
            "redis+cluster://a,,b",
        ] {
            assert!(RedisUrl::parse(text).is_err(), "{text:?}");
        }
        let many = vec!["a"; 65].join(",");
        assert!(RedisUrl::parse(&format!("redis+cluster://{many}")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics_and_nothing_but_hosts_is_shown(text in any::<String>()) {
            for text in [text.clone(), format!("redis://{text}"), format!("redis-sentinel://{text}/s")] {
                let shown = RedisUrl::parse(&text).map(|url| format!("{url:?}")).unwrap_or_default();
                prop_assert!(!shown.contains('@'));
            }
        }
    }
}
