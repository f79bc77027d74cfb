//! `[authz]`: how other gateways that ask about their requests prove that they may.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::files::{key_pair, noted_file};
use crate::config::listen::Listen;
use crate::config::notes::Content;
use crate::config::reader::Reader;
use crate::domain::tenant::KeyPair;

const CLIENT_CA: &str = "authz.tls.client_ca";

settings! {
    /// How the listener for other gateways knows them.
    AuthzSettings(reader) {
        /// A file with the values of which a gateway sends one in `X-Authz-Secret`, a line each; `None`: any may ask.
        secret_file: Option<PathBuf> = Some(noted_file(reader, "authz.secret_file", Content::Secret)),
        /// The longest that it takes to verify an agent; 503 follows.
        timeout: Duration = reader.duration("authz.timeout", "1s", ["50ms", "25s"]),
        /// True if the listener speaks TLS.
        tls: bool = Some(reader.is_any_given(&["authz.tls.cert", "authz.tls.key"])),
        /// Authorities of which a gateway shows a certificate; `None`: it needs none.
        client_ca: Option<PathBuf> = Some(noted_file(reader, CLIENT_CA, Content::Authorities)),
    } then {
        if matches!((&client_ca, &tls), (Some(Some(_)), Some(false))) {
            reader.report(&[CLIENT_CA], "needs authz.tls.cert and authz.tls.key; write them too");
        }
    }
}

settings! {
    /// The certificate that other gateways are shown.
    AuthzLive(reader) {
        /// With its key. `None`: the listener speaks in the clear.
        tls: Option<KeyPair> = key_pair(reader, "authz.tls.cert", "authz.tls.key"),
    }
}

impl AuthzSettings {
    /// Warns of a listener that anybody may ask who reaches it.
    pub(super) fn check(&self, reader: &mut Reader, listen: &Listen) {
        let is_open = self.secret_file.is_none() && self.client_ca.is_none();
        if is_open && listen.authz.iter().any(|address| !address.ip().is_loopback()) {
            let phrase = "is no loopback address, and anybody who reaches it may ask, and write who the client is; \
                          set authz.secret_file or authz.tls.client_ca";
            reader.warn(&["listen.authz"], phrase);
        }
    }
}
