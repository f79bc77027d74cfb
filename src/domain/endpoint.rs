//! Endpoint URLs: what an agent's owner declares for a key and what an application says it is (`declaredEndpoint`, `origin`).
//!
//! They are compared and never fetched.

use std::sync::Arc;

use url::Url;

use crate::domain::rpc_url::authority;

/// The longest accepted URL, in bytes.
pub const ENDPOINT_BYTES_MAX: usize = 2_048;

/// The text is not an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not an absolute http(s) URL without user info, of at most {ENDPOINT_BYTES_MAX} bytes")]
pub struct NotAnEndpoint;

/// Scheme, host and effective port (RFC 6454, section 4), as one normal text: equal exactly when the origins are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOrigin(Arc<str>);

impl WebOrigin {
    /// Reads the web origin of a URL.
    /// Error: [`NotAnEndpoint`] when the text is too long, not absolute, of another scheme, or carries user info.
    pub fn parse(text: &str) -> Result<Self, NotAnEndpoint> {
        // Also of an empty user name, which the parser would pass over.
        let has_user_info = |authority: &str| authority.contains('@');
        if text.len() > ENDPOINT_BYTES_MAX || authority(text).is_none_or(has_user_info) {
            return Err(NotAnEndpoint);
        }
        let url = Url::parse(text).map_err(|_| NotAnEndpoint)?;
        Ok(Self(url.origin().ascii_serialization().into()))
    }

    /// The normal text of the origin.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::WebOrigin;

    fn origin(text: &str) -> Option<WebOrigin> {
        WebOrigin::parse(text).ok()
    }

    #[test]
    fn only_absolute_http_urls_without_user_info_are_endpoints() {
        for text in [
            "",
            "null",
            "app.example",
            "/hook",
            "//app.example",
            "ftp://app.example",
            "javascript:alert(1)",
            "http:app.example",
            "http:///app.example",
            "https://",
            "https:// app.example",
            "https://u@app.example",
            "https://u:p@app.example",
            "https://@app.example",
            "https://app.example:99999",
            "https://app.example\\x",
            "data:text/plain,x",
            "https://[::1",
            "https://exa mple",
            "\thttps://a.example",
            "https://a.example\n",
            "file:///etc/passwd",
        ] {
            assert!(origin(text).is_none(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = origin(&text);
            let _ = origin(&format!("https://{text}"));
        }
    }
}
