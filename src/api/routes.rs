//! Which path and method is which endpoint. Paths are compared as the bytes that came: nothing is decoded or merged.

use http::Method;

use crate::wire::errors::ErrorCause;

/// The endpoints of the contract, and the description of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `POST /verify`
    Verify,
    /// `POST /verify/signature`
    VerifySignature,
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
}

/// Every endpoint, in the contract's order.
pub(crate) const ENDPOINTS: [Endpoint; 9] = [
    Endpoint::Livez,
    Endpoint::Readyz,
    Endpoint::Verify,
    Endpoint::VerifySignature,
    Endpoint::GenerateKey,
    Endpoint::RotateKey,
    Endpoint::RevokeKey,
    Endpoint::KeyStatus,
    Endpoint::OpenApi,
];

impl Endpoint {
    /// The endpoint of this method and path.
    pub(crate) fn find(method: &Method, path: &str) -> Result<Self, ErrorCause> {
        let endpoint =
            ENDPOINTS.into_iter().find(|endpoint| endpoint.path() == path).ok_or(ErrorCause::NotFound)?;
        if is_head_or(method, &endpoint.method()) {
            Ok(endpoint)
        } else {
            Err(ErrorCause::MethodNotAllowed { allow: endpoint.allow() })
        }
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Verify => "/verify",
            Self::VerifySignature => "/verify/signature",
            Self::GenerateKey => "/keys/generate",
            Self::RotateKey => "/keys/rotate",
            Self::RevokeKey => "/keys",
            Self::KeyStatus => "/keys/status",
            Self::Livez => "/livez",
            Self::Readyz => "/readyz",
            Self::OpenApi => "/openapi.json",
        }
    }

    pub(crate) const fn method(self) -> Method {
        match self {
            Self::Verify | Self::VerifySignature | Self::GenerateKey | Self::RotateKey => Method::POST,
            Self::RevokeKey => Method::DELETE,
            Self::KeyStatus | Self::Livez | Self::Readyz | Self::OpenApi => Method::GET,
        }
    }

    pub(crate) const fn takes_body(self) -> bool {
        match self {
            Self::Verify | Self::VerifySignature | Self::GenerateKey | Self::RotateKey | Self::RevokeKey => {
                true
            }
            Self::KeyStatus | Self::Livez | Self::Readyz | Self::OpenApi => false,
        }
    }

    const fn allow(self) -> &'static str {
        match self {
            Self::Verify | Self::VerifySignature | Self::GenerateKey | Self::RotateKey => "POST",
            Self::RevokeKey => "DELETE",
            Self::KeyStatus | Self::Livez | Self::Readyz | Self::OpenApi => "GET, HEAD",
        }
    }
}

/// HEAD goes wherever GET goes (RFC 9110, section 9.3.2).
fn is_head_or(method: &Method, own: &Method) -> bool {
    method == own || (own == Method::GET && method == Method::HEAD)
}
