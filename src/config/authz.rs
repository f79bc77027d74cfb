//! `[authz]`: how other gateways that ask about their requests prove that they may.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::duration::Bounds;
use crate::config::files::{key_pair, noted_file};
use crate::config::listen::Listen;
use crate::config::notes::Content;
use crate::config::reader::Reader;
use crate::domain::tenant::KeyPair;

/// How long it may take to verify an agent.
const TIMEOUT: Bounds = ["50ms", "25s"];

/// How the listener for other gateways knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthzSettings {
    /// A file with the values of which a gateway sends one in `X-Authz-Secret`, a line each; `None`: any may ask.
    pub secret_file: Option<PathBuf>,
    /// The longest that it takes to verify an agent; 503 follows.
    pub timeout: Duration,
    /// The listener's certificate and key; `None`: it speaks in the clear.
    pub tls: Option<KeyPair>,
    /// Authorities of which a gateway shows a certificate; `None`: it needs none.
    pub client_ca: Option<PathBuf>,
}

impl AuthzSettings {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        const CLIENT_CA: &str = "authz.tls.client_ca";
        read_all!(Self {
            secret_file: Some(noted_file(reader, "authz.secret_file", Content::Secret)),
            timeout: reader.duration("authz.timeout", "1s", TIMEOUT),
            tls: key_pair(reader, "authz.tls.cert", "authz.tls.key"),
            client_ca: Some(noted_file(reader, CLIENT_CA, Content::Authorities)),
        } then {
            if matches!((&client_ca, &tls), (Some(Some(_)), Some(None))) {
                reader.report(&[CLIENT_CA], "needs authz.tls.cert and authz.tls.key; write them too");
            }
        })
    }

    /// Warns of a listener that anybody may ask who reaches it.
    pub(super) fn check(&self, reader: &mut Reader, listen: &Listen) {
        let is_open = self.secret_file.is_none() && self.client_ca.is_none();
        if is_open && listen.authz.iter().any(|address| !address.ip().is_loopback()) {
            let phrase = "is no loopback address, and anybody who reaches it may ask, and write who the client is; \
                          set authz.secret_file or authz.tls.client_ca";
            reader.warn(&["listen.authz"], phrase);
        }
    }

    /// True if a restart is needed for the difference to another. Certificates are read again.
    pub(super) fn waits_for_restart(&self, other: &Self) -> bool {
        let without_tls = Self { tls: other.tls.clone(), ..self.clone() };
        self.tls.is_some() != other.tls.is_some() || without_tls != *other
    }
}
