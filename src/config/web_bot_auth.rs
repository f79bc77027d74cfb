//! `[web_bot_auth]`: the domains whose bots are known by the keys that they publish.

use crate::config::{reader::Reader, tenants::rules::host, written::valid};
use crate::domain::{BotDomains, bot::domain_of};

/// How many domains each list may have.
const DOMAINS_MAX: usize = 1_000;

impl BotDomains {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        read_all!(reader: Self {
            /// Up to 1000 domains whose keys are read: "crawler.example", "*.example" for all below it, or "*". Each domain has a limit of its
            /// own, and costs little: list those that you know. Only public addresses, and port 443. Empty: no bot is known.
            public: reader.texts("web_bot_auth.domains", &[], &(0..=DOMAINS_MAX), host),
            /// The same for domains at any address, such as "bots.internal" or "bots.internal:8443".
            private: reader.texts("web_bot_auth.private_domains", &[], &(0..=DOMAINS_MAX), private),
        })
    }
}

fn private(text: &str) -> Result<Box<str>, String> {
    let domain = domain_of(&format!("https://{text}")).filter(|domain| **domain == *text);
    valid(text, domain, "a domain in small letters, such as \"bots.internal\" or \"bots.internal:8443\"")
}
