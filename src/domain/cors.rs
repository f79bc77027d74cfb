//! Pages of other origins that may use a tenant's API (Fetch standard, "CORS protocol").

use std::time::Duration;

/// The rules for such pages. Lists are as header values have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsRules {
    /// The origins that may, as browsers write them; nothing: all.
    pub origins: Option<Vec<Box<str>>>,
    /// The methods that they may use.
    pub methods: Box<str>,
    /// The headers that they may send.
    pub headers: Box<str>,
    /// The headers of answers that they may read, ours included.
    pub exposed: Box<str>,
    /// True if they may use cookies.
    pub credentials: bool,
    /// How long browsers may remember the rules.
    pub max_age: Duration,
}

impl CorsRules {
    /// True if pages of this origin may use the API.
    pub fn allows(&self, origin: &[u8]) -> bool {
        let listed = |origins: &Vec<Box<str>>| origins.iter().any(|allowed| allowed.as_bytes() == origin);
        self.origins.as_ref().is_none_or(listed)
    }
}
