//! Listeners that speak TLS, behind tunnels through which clients that don't can ask them.

use std::net::SocketAddr;

use crate::rig::certificates::{Authority, Files, Issued};
use crate::rig::gateway::Gateway;
use crate::rig::tunnels::{Greeting, Shown, Tunnel};
use crate::support::settings::Settings;
use crate::support::time::{SOON, until};

/// The name in the certificate of the listeners.
pub(crate) const LISTENER: &str = "listener.test";

/// How a client of HTTP/1.1 alone and one of HTTP/2 introduce themselves.
pub(crate) const HTTP_1: &[&str] = &["http/1.1"];
pub(crate) const HTTP_2: &[&str] = &["h2"];

/// The listeners' certificate, in `own.crt` and `own.key`, and who signed it.
pub(crate) struct ListenerTls {
    pub(crate) authority: Authority,
    pub(crate) own: Issued,
    pub(crate) files: Files,
}

impl ListenerTls {
    pub(crate) fn new() -> Self {
        let (authority, files) = (Authority::new("the clients' authority"), Files::new());
        let own = authority.issue(LISTENER);
        files.put_pair("own", &own);
        Self { authority, own, files }
    }

    pub(super) fn settings(&self, settings: Settings) -> Settings {
        let [cert, key] = ["own.crt", "own.key"].map(|name| self.files.path(name));
        settings.set("listen.tls.cert", cert).set("listen.tls.key", key)
    }

    /// Puts tunnels before a gateway that does not run yet. Its API is asked through one from now on.
    pub(super) fn before(self, gateway: &mut Gateway) -> SecureListeners {
        let (address, api) = (gateway.address, gateway.service.api);
        let tunnel = |to, protocols| Tunnel::to(to, Greeting::new(&self.authority, LISTENER, protocols));
        let (http_1, http_2, to_api) =
            (tunnel(address, HTTP_1), tunnel(address, HTTP_2), tunnel(api, HTTP_1));
        gateway.service.api = to_api.address;
        SecureListeners { address, api, http_1, http_2, _to_api: to_api, tls: self }
    }
}

/// Running listeners.
pub(crate) struct SecureListeners {
    /// Where the gateway itself listens.
    pub(crate) address: SocketAddr,
    /// Where the API itself listens.
    pub(crate) api: SocketAddr,
    /// Leads to the gateway with HTTP/1.1.
    pub(crate) http_1: Tunnel,
    /// Leads to the gateway with HTTP/2.
    pub(crate) http_2: Tunnel,
    _to_api: Tunnel,
    tls: ListenerTls,
}

impl std::ops::Deref for SecureListeners {
    type Target = ListenerTls;

    fn deref(&self) -> &ListenerTls {
        &self.tls
    }
}

impl SecureListeners {
    /// What the gateway shows a client that asks for a name.
    #[track_caller]
    pub(crate) fn shown_to(&self, name: &str) -> Shown {
        Greeting::new(&self.authority, name, HTTP_1).meet(self.address).unwrap()
    }

    /// Waits until the gateway shows this certificate to whoever asks for a name.
    pub(crate) fn until_shown(&self, name: &str, wanted: &Issued) {
        until("the certificate is shown", SOON, || {
            (self.shown_to(name).certificate == wanted.der).then_some(())
        });
    }
}
