//! Other gateways, as they ask about their requests in each dialect. Every answer is checked for what a gateway could misread.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::rig::checks::Check;
use crate::rig::identity::{OURS, are_whole, normal};
use crate::rig::site::{Site, SiteBuilder};
use crate::support::client::Answer;
use crate::support::process::{free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

/// The host of the service in the calls of gateways that don't pass the client's.
pub(crate) const SERVICE: &str = "tiergate.internal";

/// A gateway that other gateways ask.
pub(crate) struct Asked {
    pub(crate) site: Site,
    /// Where they ask.
    pub(crate) authz: SocketAddr,
}

impl Asked {
    pub(crate) fn start(site: SiteBuilder<'_>) -> Self {
        let authz = free_port(own_ip());
        let site = site.set("listen.authz", vec![authz.to_string()]);
        // A busy machine takes longer for a decision than the second that it has by default, and that would be 503.
        let site = site.set_default("authz.timeout", "25s");
        let site = site.set("listen.trusted_proxies", vec!["127.0.0.0/8"]).start();
        until("the listener for other gateways listens", SOON, || std::net::TcpStream::connect(authz).ok());
        Self { site, authz }
    }

    /// Asks in a dialect.
    #[track_caller]
    pub(crate) fn ask(&self, dialect: Dialect, original: &Original) -> Decision {
        original.ask(dialect, self.authz)
    }
}

/// The name of what upstreams can check, where a tenant asks for it.
const ASSERTION: &str = "x-agent-assertion";

/// The domain of a bot that has proven it.
const DOMAIN: &str = "x-agent-domain";

/// A dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Forward,
    Nginx,
    Envoy,
    Grpc,
}

pub(crate) const DIALECTS: [Dialect; 4] = [Dialect::Forward, Dialect::Nginx, Dialect::Envoy, Dialect::Grpc];

/// A client's request at another gateway.
#[derive(Debug, Clone)]
pub(crate) struct Original {
    pub(crate) tenant: String,
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) target: String,
    pub(crate) scheme: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) client: Option<IpAddr>,
}

/// The verdict that a gateway reads from an answer.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) dialect: Dialect,
    pub(crate) passes: bool,
    /// The status, headers and body for the client. Headers alone, if the request passes.
    pub(crate) answer: Answer,
    /// The identity for the upstream.
    pub(crate) identity: Vec<(String, String)>,
    /// The names that the gateway strips.
    pub(crate) stripped: Vec<String>,
}

/// Everything in an answer that a client acts by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) headers: Vec<(String, String)>,
}

const ACTED_BY: [&str; 8] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "retry-after",
    "cache-control",
    "allow",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "vary",
];

impl Original {
    pub(crate) fn new(method: &str, host: &str, target: &str) -> Self {
        let text = str::to_owned;
        let (tenant, scheme) = (host.split('.').next().unwrap().to_owned(), text("http"));
        let [method, host, target] = [method, host, target].map(text);
        Self { tenant, method, host, target, scheme, headers: Vec::new(), client: None }
    }

    pub(crate) fn get(host: &str, target: &str) -> Self {
        Self::new("GET", host, target)
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_all(self, headers: &[(String, String)]) -> Self {
        headers.iter().fold(self, |original, (name, value)| original.with(name, value))
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.with("X-API-Key", key)
    }

    pub(crate) fn from(self, client: IpAddr) -> Self {
        Self { client: Some(client), ..self }
    }

    pub(crate) fn of_tenant(self, tenant: &str) -> Self {
        Self { tenant: tenant.to_owned(), ..self }
    }

    /// The request as it comes to a gateway of ours.
    pub(crate) fn direct(&self) -> Request {
        Request::new(&self.method, &self.host, &self.target).with_all(&self.headers)
    }

    /// The call of a gateway over HTTP/1.
    pub(crate) fn call(&self, dialect: Dialect) -> Request {
        let Self { tenant, method, host, target, scheme, .. } = self;
        let call = match dialect {
            Dialect::Forward => Request::get(SERVICE, &format!("/forward/{tenant}"))
                .with("X-Forwarded-Method", method)
                .with("X-Forwarded-Proto", scheme)
                .with("X-Forwarded-Host", host)
                .with("X-Forwarded-Uri", target),
            Dialect::Nginx => Request::get(host, &format!("/nginx/{tenant}"))
                .with("X-Original-Method", method)
                .with("X-Original-URI", target),
            Dialect::Envoy => {
                Request::new(method, host, &format!("/envoy/{tenant}{target}")).with("Content-Length", "0")
            }
            Dialect::Grpc => panic!("a Check is no call over HTTP/1"),
        };
        let call = call.with_all(&self.headers);
        self.client.map_or(call.clone(), |client| call.with("X-Forwarded-For", &client.to_string()))
    }

    /// The call of a gateway over gRPC.
    pub(crate) fn check(&self) -> Check {
        Check::of(self)
    }

    /// Asks in a dialect, on a connection of its own.
    #[track_caller]
    pub(crate) fn ask(&self, dialect: Dialect, service: SocketAddr) -> Decision {
        if dialect == Dialect::Grpc {
            return self.check().ask(service).decision();
        }
        let answer = self.call(dialect).ask_on(&mut Wire::open(service));
        decision(dialect, &self.tenant, answer)
    }
}

/// The verdict in an answer over HTTP/1.
#[track_caller]
pub(crate) fn decision(dialect: Dialect, tenant: &str, mut answer: Answer) -> Decision {
    let shown = format!("{dialect:?} of {tenant}: {answer:?}");
    let identity = identity_in(&answer.headers);
    let stripped = answer.header("x-envoy-auth-headers-to-remove").unwrap_or_default();
    let stripped = stripped.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let passes = answer.status == 200;
    if passes {
        assert_eq!(
            (answer.header("content-length"), answer.header("cache-control")),
            (Some("0"), Some("no-store"))
        );
        assert!(answer.body.is_empty(), "{shown}");
        assert_eq!(answer.header("x-authz-status").unwrap_or("200"), "200", "{shown}");
    } else {
        assert!(answer.status >= 400, "a gateway lets it pass: {shown}");
    }
    if dialect == Dialect::Nginx && !passes {
        assert_eq!(
            (answer.status, &*answer.body, answer.header("content-length")),
            (403, &b""[..], Some("0"))
        );
        answer.status = answer.header("x-authz-status").unwrap_or_else(|| panic!("{shown}")).parse().unwrap();
        let body = answer.header("x-authz-body").unwrap_or_default().to_owned();
        assert!(body.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{shown}");
        answer.body = body.into_bytes();
    }
    let decision = Decision { dialect, passes, answer, identity, stripped };
    decision.check();
    decision
}

/// The identity among headers.
pub(crate) fn identity_in(headers: &[(String, String)]) -> Vec<(String, String)> {
    let named = headers.iter().filter(|(name, _)| normal(name).starts_with("x-agent-"));
    let mut named: Vec<_> = named.map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
    named.sort_by_key(|(name, _)| OURS.iter().position(|ours| ours == name).unwrap_or(OURS.len()));
    named
}

impl Decision {
    /// Checks all that a gateway could misread.
    #[track_caller]
    pub(crate) fn check(&self) {
        let names: Vec<&str> = self.identity.iter().map(|(name, _)| name.as_str()).collect();
        let is_whole = are_whole(names.strip_suffix(&[ASSERTION]).unwrap_or(&names));
        assert!(names.is_empty() || (self.passes && (is_whole || names == [DOMAIN])), "{self:?}");
        if self.passes && matches!(self.dialect, Dialect::Envoy | Dialect::Grpc) {
            for name in OURS.into_iter().chain([ASSERTION, DOMAIN]) {
                let is_set = names.contains(&name);
                let is_stripped = self.stripped.iter().any(|stripped| stripped == name);
                assert!(is_set != is_stripped, "{name} is either set or stripped: {self:?}");
                let other = name.replace('-', "_");
                assert!(self.stripped.contains(&other), "{other} is not stripped: {self:?}");
            }
            assert!(!self.stripped.iter().any(|name| name.starts_with(':') || name == "host"), "{self:?}");
        }
    }

    #[track_caller]
    pub(crate) fn passes(&self) -> &Self {
        assert!(self.passes, "{self:?}");
        self
    }

    /// The verdict of a refusal, as the client reads it.
    #[track_caller]
    pub(crate) fn refusal(&self) -> Verdict {
        assert!(!self.passes, "{self:?}");
        Verdict::of(&self.answer)
    }

    /// The status that the client reads, and the `errorType`.
    #[track_caller]
    pub(crate) fn error(&self) -> (u16, String) {
        let verdict = self.refusal();
        (verdict.status, verdict.body["errorType"].as_str().unwrap_or_default().to_owned())
    }
}

impl Verdict {
    /// An answer's verdict. Times are left out, which differ by the second that passes in between.
    #[track_caller]
    pub(crate) fn of(answer: &Answer) -> Self {
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if !body.is_null() {
            body["timestamp"] = json!("now");
        }
        let has_time = |text: &str| text.parse().is_ok_and(|seconds: u64| (1..=60).contains(&seconds));
        let mut headers: Vec<(String, String)> = Vec::new();
        for name in ACTED_BY {
            let Some(value) = answer.header(name) else { continue };
            let is_time = name == "retry-after" && has_time(value);
            headers.push((name.to_owned(), if is_time { "some".to_owned() } else { value.to_owned() }));
        }
        if body["details"]["retryAfter"].as_u64().is_some() {
            let seconds = body["details"]["retryAfter"].to_string();
            assert_eq!(answer.header("retry-after"), Some(seconds.as_str()));
            body["details"]["retryAfter"] = json!("some");
            body["error"] = json!("some");
        }
        Self { status: answer.status, body, headers }
    }
}
