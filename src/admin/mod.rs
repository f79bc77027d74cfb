//! The listener for operators alone: `GET /metrics` for Prometheus, health for probes, and a page that shows how the service is.
//!
//! The page has no password. Browsers keep it from other pages: it sends no header that would share it, and is shown only
//! under addresses and names that no stranger can have, so that no stranger's name can be pointed at it (DNS rebinding).

mod status;

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::pipeline::readiness::Readiness;
use crate::serve::buffered::{BufferedService, Request};
use crate::telemetry::metrics::Metrics;
use crate::wire::answers::{self, Answer};
use crate::wire::errors::ErrorCause;
use crate::wire::pages;

/// The Prometheus text format.
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// The page runs and loads only files of this listener.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Ends of names that nobody can register. Names below `.local` alone are not among them: by mDNS any machine on the same
/// link can answer for them.
const INSIDE: [&str; 4] = [".localhost", ".cluster.local", ".internal", ".svc"];

/// Facts that the page shows beside metrics and readiness.
pub(crate) trait Facts: Send + Sync + 'static {
    /// Tenants, upstreams, certificates and the last reload.
    fn status(&self) -> Value;

    /// The configuration that is in force, without secrets.
    fn configuration(&self) -> Value;
}

/// The admin listener.
pub(crate) struct Admin {
    metrics: Metrics,
    readiness: Arc<Readiness>,
    facts: Arc<dyn Facts>,
}

/// The answers of the admin listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `GET /metrics`
    Metrics,
    /// `GET /livez`
    Livez,
    /// `GET /readyz`
    Readyz,
    /// `GET /`, and its style and script.
    File { kind: &'static str, text: &'static str },
    /// `GET /status.json`
    Status,
    /// `GET /configuration.json`
    Configuration,
    /// Any of the page under a name that a stranger could have.
    Elsewhere,
}

impl Admin {
    /// Shows these metrics and facts.
    pub(crate) fn new(metrics: Metrics, readiness: Arc<Readiness>, facts: Arc<dyn Facts>) -> Self {
        Self { metrics, readiness, facts }
    }

    fn scrape(&self) -> Result<Answer, ErrorCause> {
        let report = self.readiness.report();
        self.metrics.ready.with_label_values(&["store"]).set(report.store.is_ok().into());
        self.metrics.ready.with_label_values(&["chain"]).set(report.chain.is_ok().into());
        let text = self.metrics.render().map_err(|_| ErrorCause::Internal)?;
        Ok(answers::text(StatusCode::OK, HeaderMap::new(), METRICS_TYPE, text.into_bytes()))
    }
}

impl Endpoint {
    fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/metrics" => Self::Metrics,
            "/livez" => Self::Livez,
            "/readyz" => Self::Readyz,
            "/" => Self::File { kind: "text/html; charset=utf-8", text: include_str!("page.html") },
            "/page.css" => Self::File { kind: "text/css; charset=utf-8", text: include_str!("page.css") },
            "/page.js" => {
                Self::File { kind: "text/javascript; charset=utf-8", text: include_str!("page.js") }
            }
            "/status.json" => Self::Status,
            "/configuration.json" => Self::Configuration,
            _ => return None,
        })
    }
}

impl BufferedService for Admin {
    type Endpoint = Endpoint;
    type Notes = ();

    fn begin(&self, _: &Request<'_>) {}

    fn find(&self, request: &Request<'_>) -> Result<(Endpoint, usize), ErrorCause> {
        let endpoint = Endpoint::at(request.path).ok_or(ErrorCause::NotFound)?;
        if !matches!(request.method, "GET" | "HEAD") {
            return Err(ErrorCause::MethodNotAllowed { allow: "GET, HEAD".into() });
        }
        let is_page = !matches!(endpoint, Endpoint::Metrics | Endpoint::Livez | Endpoint::Readyz);
        let is_shown = !is_page || request.fields.only(Name::Host).is_some_and(is_inside);
        Ok((if is_shown { endpoint } else { Endpoint::Elsewhere }, 0))
    }

    async fn answer(
        &self,
        endpoint: Endpoint,
        _: &Request<'_>,
        _: &[u8],
        (): &mut (),
    ) -> Result<Answer, ErrorCause> {
        let json = |value: &Value| answers::json(StatusCode::OK, HeaderMap::new(), value);
        let answer = match endpoint {
            Endpoint::Metrics => return self.scrape(),
            Endpoint::Livez => return Ok(answers::alive()),
            Endpoint::Readyz => return Ok(answers::readiness(&self.readiness.first_report().await, None)),
            Endpoint::Status => {
                json(&status::of(&self.readiness.report(), &self.metrics.gather(), self.facts.status()))
            }
            Endpoint::Configuration => json(&self.facts.configuration()),
            Endpoint::File { kind, text } => {
                answers::text(StatusCode::OK, HeaderMap::new(), HeaderValue::from_static(kind), text.into())
            }
            Endpoint::Elsewhere => {
                let text = "This page is shown under an IP address, localhost or an internal name.\n";
                let kind = HeaderValue::from_static("text/plain; charset=utf-8");
                answers::text(StatusCode::MISDIRECTED_REQUEST, HeaderMap::new(), kind, text.into())
            }
        };
        Ok(pages::guarded(answer, POLICY))
    }
}

/// True for an address, and for a name that no stranger can register.
fn is_inside(host: &[u8]) -> bool {
    let host = String::from_utf8_lossy(host).to_ascii_lowercase();
    if host.starts_with('[') {
        return true; // Browsers write IPv6 addresses alone in brackets.
    }
    let name = host.split(':').next().unwrap_or_default().trim_end_matches('.');
    let is_of_one_label = !name.contains('.') && !name.is_empty();
    name.parse::<IpAddr>().is_ok() || is_of_one_label || INSIDE.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::is_inside;

    // threat: The operator's page leaks
    #[test]
    fn the_page_is_shown_under_names_that_no_stranger_can_register() {
        for host in
            ["127.0.0.1", "127.0.0.1:9090", "[::1]:9090", "localhost:9090", "tiergate:9090", "LOCALHOST"]
        {
            assert!(is_inside(host.as_bytes()), "{host}");
        }
        for host in ["tiergate.prod.svc:9090", "t.svc.cluster.local", "ops.internal.", "a.localhost"] {
            assert!(is_inside(host.as_bytes()), "{host}");
        }
        for host in ["", ":9090", "attacker.example", "127.0.0.1.attacker.example:9090"] {
            assert!(!is_inside(host.as_bytes()), "{host}");
        }
        for host in
            ["evil.local", "evil.local.:9090", "svc.cluster.local.attacker.example", "evilcluster.local"]
        {
            assert!(!is_inside(host.as_bytes()), "{host}");
        }
    }
}
