//! Which path and method is which endpoint. Paths are compared as the bytes that came: nothing is decoded or merged.

use http::HeaderValue;
use strum::VariantArray;

use crate::error::Error;
use crate::wire::{BODY_BYTES_MAX, KEY_SET_PATH, RULES_PATH};

/// The endpoints of the contract in its order, the description of them, what owners sign, and their page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub(crate) enum Endpoint {
    Livez,
    Readyz,
    Verify,
    VerifySignature,
    ReadProfile,
    GenerateKey,
    RotateKey,
    RevokeKey,
    KeyStatus,
    OpenApi,
    Docs,
    Signing,
    /// The public keys of assertions, where any are signed.
    KeySet,
    /// The page, and the files below it, where that is on.
    Console,
}

/// Every endpoint of the API. The page is no part of it.
pub(crate) const ENDPOINTS: &[Endpoint] = match Endpoint::VARIANTS {
    [endpoints @ .., Endpoint::Console] => endpoints,
    _ => panic!("the page is the last"),
};

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
        let Row(.., audience) = endpoint.row();
        matches!((self, audience), (Self::Everybody, _) | (_, Self::Owners))
    }
}

/// Method, path, the kind of credential that it takes, the name of what it does with a key, and for whom it is.
struct Row(&'static str, &'static str, &'static str, Option<&'static str>, Audience);

impl Endpoint {
    /// The table of endpoints.
    const fn row(self) -> &'static Row {
        use Audience::{Everybody, Owners};
        match self {
            Self::Livez => &Row("GET", "/livez", "none", None, Everybody),
            Self::Readyz => &Row("GET", "/readyz", "none", None, Everybody),
            Self::Verify => &Row("POST", "/verify", "api_key", None, Everybody),
            Self::VerifySignature => &Row("POST", "/verify/signature", "signature", None, Everybody),
            Self::ReadProfile => &Row("POST", "/profile", "signature", None, Owners),
            Self::GenerateKey => &Row("POST", "/keys/generate", "signature", Some("generate"), Owners),
            Self::RotateKey => &Row("POST", "/keys/rotate", "signature", Some("rotate"), Owners),
            Self::RevokeKey => &Row("DELETE", "/keys", "signature", Some("revoke"), Owners),
            Self::KeyStatus => &Row("GET", "/keys/status", "none", Some("status"), Owners),
            Self::OpenApi => &Row("GET", "/openapi.json", "none", None, Owners),
            Self::Docs => &Row("GET", "/docs", "none", None, Owners),
            Self::Signing => &Row("GET", RULES_PATH, "none", None, Owners),
            Self::KeySet => &Row("GET", KEY_SET_PATH, "none", None, Owners),
            Self::Console => &Row("GET", "/console", "none", None, Owners),
        }
    }

    /// The endpoint of the API at this path.
    pub(crate) fn at(path: &str) -> Result<Self, Error> {
        ENDPOINTS.iter().copied().find(|endpoint| endpoint.path() == path).ok_or(Error::NotFound)
    }

    /// The same endpoint if it takes this method.
    pub(crate) fn taking(self, method: &str) -> Result<Self, Error> {
        match (self.method(), method) {
            // HEAD goes wherever GET goes (RFC 9110, section 9.3.2).
            ("GET", "GET" | "HEAD") => Ok(self),
            ("GET", _) => Err(Error::MethodNotAllowed { allow: "GET, HEAD".into() }),
            (own, _) if own == method => Ok(self),
            (allow, _) => Err(Error::MethodNotAllowed { allow: allow.into() }),
        }
    }

    pub(crate) const fn method(self) -> &'static str {
        let Row(method, ..) = self.row();
        method
    }

    pub(crate) const fn path(self) -> &'static str {
        let Row(_, path, ..) = self.row();
        path
    }

    /// The kind of credential that it takes.
    pub(crate) const fn credential(self) -> &'static str {
        let Row(_, _, credential, ..) = self.row();
        credential
    }

    /// The name of what it does with a key.
    pub(crate) const fn key_operation(self) -> Option<&'static str> {
        let Row(_, _, _, key_operation, _) = self.row();
        *key_operation
    }

    /// The longest body, in bytes; 0: there is none.
    pub(crate) fn body_bytes_max(self) -> usize {
        if self.method() == "GET" { 0 } else { BODY_BYTES_MAX }
    }

    /// The link to the rules, for those whose credential is refused here. It is relative: a proxy may serve the API below a
    /// path.
    pub(crate) fn help(self) -> HeaderValue {
        match self.path().bytes().filter(|byte| *byte == b'/').count() {
            1 => HeaderValue::from_static("<.well-known/tiergate>; rel=\"help\""),
            _ => HeaderValue::from_static("<../.well-known/tiergate>; rel=\"help\""),
        }
    }
}
