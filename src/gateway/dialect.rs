//! The dialects in which gateways ask and read answers.

/// A dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `X-Forwarded-*`, and any 2xx lets the request pass: Traefik, Caddy, APISIX, HAProxy.
    Forward,
    /// nginx's `auth_request`: any 2xx lets the request pass, 401 and 403 don't, and all else is 500.
    Nginx,
    /// Envoy's HTTP service, and the Gateway API's.
    Envoy,
    /// `envoy.service.auth.v3`: the verdict stands beside the answer.
    Grpc,
}

impl Dialect {
    /// True if the gateway strips headers by names in its own configuration, and not those that we list.
    pub(crate) const fn strips_by_names(self) -> bool {
        matches!(self, Self::Forward | Self::Nginx)
    }

    /// True if an answer of 2xx, to a request that does not pass, is not taken for leave. Some gateways take any.
    pub(crate) const fn takes_success(self) -> bool {
        matches!(self, Self::Grpc)
    }
}
