//! The dialects in which gateways ask and read answers.

/// A dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `X-Forwarded-*`, and any 2xx lets the request pass: Traefik, Caddy, APISIX, HAProxy.
    Forward,
    /// nginx's `auth_request`: any 2xx lets the request pass, 401 and 403 don't, and all else is 500.
    Nginx,
    /// Envoy's HTTP service: 200 alone lets the request pass.
    Envoy,
    /// `envoy.service.auth.v3`: the verdict stands beside the answer.
    Grpc,
}

impl Dialect {
    /// True if an answer with this status, for a request that does not pass, is not taken for one that does.
    pub(crate) const fn takes(self, status: u16) -> bool {
        match self {
            Self::Forward | Self::Nginx => status >= 300,
            Self::Envoy => status != 200,
            Self::Grpc => true,
        }
    }
}
