//! Bots that prove their domain (Web Bot Auth): a signature to be proven, and the domains whose keys are read.

use url::{Host, Url};

use crate::domain::host::HostPattern;

/// The path under which a domain publishes the keys of its bots. Any other may be a stranger's: it names no domain.
pub const DIRECTORY_PATH: &str = "/.well-known/http-message-signatures-directory";

/// A signature over a request that is right but for its cryptography.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotSignature {
    /// The host that publishes the key, with its port unless that is 443.
    pub domain: Box<str>,
    /// The thumbprint of the key (RFC 7638).
    pub key_id: Box<str>,
    /// The bytes that are signed.
    pub base: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

/// The domains whose bots are known by their keys; none: no bot is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BotDomains {
    /// Those at public addresses, at port 443.
    pub public: Vec<HostPattern>,
    /// Those at any address, each as [`domain_of`] names it.
    pub private: Vec<Box<str>>,
}

/// Where the directory of a domain may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// At a public address; the domain is below a `*`, where anybody may name more.
    Below,
    /// At a public address.
    Public,
    /// At any address.
    Anywhere,
}

impl BotDomains {
    /// Where the directory of this domain may lie; `None`: it is not read.
    pub fn reach(&self, domain: &str) -> Option<Reach> {
        if self.private.iter().any(|one| **one == *domain) {
            return Some(Reach::Anywhere);
        }
        let exact = HostPattern::Exact(domain.into());
        let is_taken = !domain.contains(':') && self.public.iter().any(|pattern| pattern.covers(&exact));
        is_taken.then(|| if self.public.contains(&exact) { Reach::Public } else { Reach::Below })
    }
}

/// The domain whose directory a URL is: `https`, and [`DIRECTORY_PATH`] or no path.
pub fn domain_of(url: &str) -> Option<Box<str>> {
    let url = Url::parse(url).ok()?;
    let host = match url.host()? {
        Host::Domain(host) if !host.ends_with('.') && !host.contains('*') => host,
        Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_) => return None,
    };
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    let is_directory = url.scheme() == "https" && ["/", DIRECTORY_PATH].contains(&url.path());
    let domain = url.port().map_or_else(|| host.into(), |port| format!("{host}:{port}").into());
    (is_bare && is_directory && url.fragment().is_none()).then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::{BotDomains, Reach, domain_of};
    use crate::domain::host::HostPattern;

    // threat: Somebody poses as a bot, or has its directory be an inner address
    #[test]
    fn a_url_names_a_domain_by_https_and_the_registered_path_alone() {
        for (url, domain) in [
            ("https://bots.example", "bots.example"),
            ("https://bots.example/", "bots.example"),
            ("https://BOTS.example:443/.well-known/http-message-signatures-directory", "bots.example"),
            ("https://bots.example:8443", "bots.example:8443"),
            ("https://b\u{fc}cher.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(domain_of(url).as_deref(), Some(domain), "{url}");
        }
        for url in [
            "http://bots.example",
            "https://bots.example/users/mallory/keys.json",
            "https://bots.example/.well-known/http-message-signatures-directory/",
            "https://bots.example/.well-known/http-message-signatures-directory?x",
            "https://bots.example?x",
            "https://bots.example#x",
            "https://user@bots.example",
            "https://:password@bots.example",
            "https://bots.example.",
            "https://192.0.2.1",
            "https://0x7f.1",
            "https://2130706433",
            "https://[::1]",
            "https:///",
            "data:,x",
            "bots.example",
            "",
        ] {
            assert_eq!(domain_of(url), None, "{url}");
        }
    }

    // threat: Somebody poses as a bot, or has its directory be an inner address
    #[test]
    fn only_listed_domains_are_read_at_port_443_unless_they_are_named_with_another() {
        let public = ["*.bots.example", "crawler.example"].map(|text| HostPattern::parse(text).unwrap());
        let domains = BotDomains { public: public.into(), private: vec!["inner.bots.example:8443".into()] };
        for (domain, reach) in [
            ("a.bots.example", Some(Reach::Below)),
            ("crawler.example", Some(Reach::Public)),
            ("inner.bots.example:8443", Some(Reach::Anywhere)),
            ("inner.bots.example", Some(Reach::Below)),
            ("crawler.example:8443", None),
            ("bots.example", None),
            ("x.crawler.example", None),
            ("other.example", None),
        ] {
            assert_eq!(domains.reach(domain), reach, "{domain}");
        }
        assert_eq!(BotDomains::default().reach("crawler.example"), None);
    }
}
