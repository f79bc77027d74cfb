//! Which path and method is which endpoint. Paths are compared as the bytes that came: nothing is decoded or merged.

use http::HeaderValue;

use crate::wire::bodies::BODY_BYTES_MAX;
use crate::wire::discovery::RULES_PATH;
use crate::wire::errors::ErrorCause;

/// The endpoints of the contract, the description of them, what owners sign, and their page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `POST /verify`
    Verify,
    /// `POST /verify/signature`
    VerifySignature,
    /// `POST /profile`
    ReadProfile,
    /// `POST /keys/generate`
    GenerateKey,
    /// `POST /keys/rotate`
    RotateKey,
    /// `DELETE /keys`
    RevokeKey,
    /// `GET /keys/status`
    KeyStatus,
    /// `GET /livez`
    Livez,
    /// `GET /readyz`
    Readyz,
    /// `GET /openapi.json`
    OpenApi,
    /// `GET /docs`
    Docs,
    /// `GET /.well-known/tiergate`
    Signing,
    /// `GET /console` and the files below it, where that is on.
    Console,
}

/// Every endpoint of the API, in the contract's order. The page is no part of it.
pub(crate) const ENDPOINTS: [Endpoint; 12] = [
    Endpoint::Livez,
    Endpoint::Readyz,
    Endpoint::Verify,
    Endpoint::VerifySignature,
    Endpoint::ReadProfile,
    Endpoint::GenerateKey,
    Endpoint::RotateKey,
    Endpoint::RevokeKey,
    Endpoint::KeyStatus,
    Endpoint::OpenApi,
    Endpoint::Docs,
    Endpoint::Signing,
];

/// Whom a listener of the API is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Services and probes: every endpoint.
    Everybody,
    /// Agents' owners, who come from anywhere: no endpoint that verifies or tells how the service is.
    Owners,
}

impl Audience {
    /// The name of the listener in logs.
    pub(crate) const fn listener(self) -> &'static str {
        match self {
            Self::Everybody => "api",
            Self::Owners => "owners",
        }
    }

    /// True if the listener answers this endpoint.
    pub(crate) const fn has(self, endpoint: Endpoint) -> bool {
        match endpoint {
            Endpoint::Verify | Endpoint::VerifySignature | Endpoint::Livez | Endpoint::Readyz => {
                matches!(self, Self::Everybody)
            }
            Endpoint::ReadProfile
            | Endpoint::GenerateKey
            | Endpoint::RotateKey
            | Endpoint::RevokeKey
            | Endpoint::KeyStatus
            | Endpoint::OpenApi
            | Endpoint::Docs
            | Endpoint::Signing
            | Endpoint::Console => true,
        }
    }
}

impl Endpoint {
    /// The endpoint of the API at this path.
    pub(crate) fn at(path: &str) -> Result<Self, ErrorCause> {
        ENDPOINTS.into_iter().find(|endpoint| endpoint.path() == path).ok_or(ErrorCause::NotFound)
    }

    /// The same endpoint if it takes this method.
    pub(crate) fn taking(self, method: &str) -> Result<Self, ErrorCause> {
        // HEAD goes wherever GET goes (RFC 9110, section 9.3.2).
        let own = self.method();
        if method == own || (method == "HEAD" && own == "GET") {
            Ok(self)
        } else {
            Err(ErrorCause::MethodNotAllowed { allow: self.allow() })
        }
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Verify => "/verify",
            Self::VerifySignature => "/verify/signature",
            Self::ReadProfile => "/profile",
            Self::GenerateKey => "/keys/generate",
            Self::RotateKey => "/keys/rotate",
            Self::RevokeKey => "/keys",
            Self::KeyStatus => "/keys/status",
            Self::Livez => "/livez",
            Self::Readyz => "/readyz",
            Self::OpenApi => "/openapi.json",
            Self::Docs => "/docs",
            Self::Signing => RULES_PATH,
            Self::Console => "/console",
        }
    }

    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Verify
            | Self::VerifySignature
            | Self::ReadProfile
            | Self::GenerateKey
            | Self::RotateKey => "POST",
            Self::RevokeKey => "DELETE",
            Self::KeyStatus
            | Self::Livez
            | Self::Readyz
            | Self::OpenApi
            | Self::Docs
            | Self::Signing
            | Self::Console => "GET",
        }
    }

    /// The kind of credential that it takes.
    pub(crate) const fn credential(self) -> &'static str {
        match self {
            Self::Verify => "api_key",
            Self::VerifySignature
            | Self::ReadProfile
            | Self::GenerateKey
            | Self::RotateKey
            | Self::RevokeKey => "signature",
            Self::KeyStatus
            | Self::Livez
            | Self::Readyz
            | Self::OpenApi
            | Self::Docs
            | Self::Signing
            | Self::Console => "none",
        }
    }

    /// The name of what it does with a key.
    pub(crate) const fn key_operation(self) -> Option<&'static str> {
        match self {
            Self::GenerateKey => Some("generate"),
            Self::RotateKey => Some("rotate"),
            Self::RevokeKey => Some("revoke"),
            Self::KeyStatus => Some("status"),
            Self::Verify
            | Self::VerifySignature
            | Self::ReadProfile
            | Self::Livez
            | Self::Readyz
            | Self::OpenApi
            | Self::Docs
            | Self::Signing
            | Self::Console => None,
        }
    }

    /// The longest body, in bytes; 0: there is none.
    pub(crate) const fn body_bytes_max(self) -> usize {
        match self {
            Self::Verify
            | Self::VerifySignature
            | Self::ReadProfile
            | Self::GenerateKey
            | Self::RotateKey
            | Self::RevokeKey => BODY_BYTES_MAX,
            Self::KeyStatus
            | Self::Livez
            | Self::Readyz
            | Self::OpenApi
            | Self::Docs
            | Self::Signing
            | Self::Console => 0,
        }
    }

    /// The link to the rules, for those whose credential is refused here. It is relative: a proxy may serve the API below a
    /// path.
    pub(crate) fn help(self) -> HeaderValue {
        match self.path().bytes().filter(|byte| *byte == b'/').count() {
            1 => HeaderValue::from_static("<.well-known/tiergate>; rel=\"help\""),
            _ => HeaderValue::from_static("<../.well-known/tiergate>; rel=\"help\""),
        }
    }

    /// The methods that a refused one is answered with.
    const fn allow(self) -> &'static str {
        match self.method().as_bytes() {
            b"GET" => "GET, HEAD",
            _ => self.method(),
        }
    }
}
