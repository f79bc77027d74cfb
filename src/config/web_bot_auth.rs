//! `[web_bot_auth]`: the domains whose bots are known by the keys that they publish.

use crate::config::reader::Reader;
use crate::config::tenants::rules::host;
use crate::config::written::valid;
use crate::domain::bot::{BotDomains, domain_of};

/// How many domains each list may have.
const DOMAINS_MAX: usize = 1_000;

impl BotDomains {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        read_all!(Self {
            public: reader.texts("web_bot_auth.domains", &[], &(0..=DOMAINS_MAX), host),
            private: reader.texts("web_bot_auth.private_domains", &[], &(0..=DOMAINS_MAX), private),
        })
    }
}

fn private(text: &str) -> Result<Box<str>, String> {
    let domain = domain_of(&format!("https://{text}")).filter(|domain| **domain == *text);
    valid(text, domain, "a domain in small letters, such as \"bots.internal\" or \"bots.internal:8443\"")
}
