//! `[authz]`: how other gateways that ask about their requests prove that they may.

use std::{path::PathBuf, time::Duration};

use crate::config::files::{key_pair, noted_file};
use crate::config::{listen::Listen, notes::Content, reader::Reader};
use crate::domain::KeyPair;

const CLIENT_CA: &str = "authz.tls.client_ca";

settings! {
    /// How the listener for other gateways knows them.
    AuthzSettings(reader) {
        /// Optional. A file with the text that a gateway sends in X-Authz-Secret, 16 or more visible ASCII characters without a blank; of
        /// several lines any counts, so that it can be changed without a gap. A line with a colon is "tenant:secret", and good for the tenant of
        /// that id alone. Whoever does not send it is answered 503, and the log says so. It is read at the start.
        /// Example: "/etc/tiergate/authz-secret"
        secret_file: Option<PathBuf> = Some(noted_file(reader, "authz.secret_file", Content::Secret)),
        /// How long it may take to verify an agent, 50ms to 25s; 503 follows. Write less than the gateway waits.
        timeout: Duration = reader.duration("authz.timeout", "1s", ["50ms", "25s"]),
        /// True if the listener speaks TLS.
        tls: bool = Some(reader.is_any_given(&["authz.tls.cert", "authz.tls.key"])),
        /// The authorities of which a gateway must show a certificate. They are read at the start.
        /// Example: "/etc/tiergate/gateways.crt"
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
        /// The listener's certificate with its chain, and its key, which are read again when they change.
        /// Example: "/etc/tiergate/authz.crt"
        /// Example: "/etc/tiergate/authz.key"
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
