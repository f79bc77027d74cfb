//! The API's description: `openapi.json`, and the page that `console/docs.mjs` writes from it, for `GET /docs`.

use http::{HeaderMap, HeaderValue, StatusCode};

use crate::wire::{Answer, answers::text, pages::guarded};

/// The machine-readable description of this API.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

/// The same for people. It runs no script and loads nothing.
pub(super) const PAGE: &str = include_str!("docs.html");

/// The page's Content-Security-Policy, which names the digest of its style.
pub(super) const POLICY: HeaderValue = HeaderValue::from_static(include_str!("docs.csp"));

/// The page.
pub(super) fn answer() -> Answer {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    guarded(text(StatusCode::OK, HeaderMap::new(), kind, PAGE.into()), POLICY)
}
