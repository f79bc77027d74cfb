//! A gateway whose listeners speak TLS, behind tunnels through which clients that don't can ask it.

use std::net::SocketAddr;

use crate::rig::certificates::{Authority, Files, Issued};
use crate::rig::gateway::Gateway;
use crate::rig::tenants::Tenant;
use crate::rig::tunnels::{Greeting, Shown, Tunnel};
use crate::support::settings::Settings;
use crate::support::time::{SOON, until};

/// The name in the certificate of the listeners.
pub(crate) const LISTENER: &str = "listener.test";

/// How a client of HTTP/1.1 alone and one of HTTP/2 introduce themselves.
pub(crate) const HTTP_1: &[&str] = &["http/1.1"];
pub(crate) const HTTP_2: &[&str] = &["h2"];

/// A running gateway with TLS. Dropped in this order: the process before what leads to it.
pub(crate) struct SecureGateway {
    /// To be asked in the clear, over HTTP/1.1; so is its API.
    pub(crate) gateway: Gateway,
    /// Where the gateway itself listens.
    pub(crate) address: SocketAddr,
    /// Where the API itself listens.
    pub(crate) api: SocketAddr,
    /// Leads to the gateway with HTTP/1.1.
    pub(crate) http_1: Tunnel,
    /// Leads to the gateway with HTTP/2.
    pub(crate) http_2: Tunnel,
    _to_api: Tunnel,
    pub(crate) authority: Authority,
    /// What the listeners show.
    pub(crate) own: Issued,
    pub(crate) files: Files,
}

impl SecureGateway {
    /// Starts a gateway; `tenants` are given the authority and the folder for their certificates. The listeners' own
    /// stand in `own.crt` and `own.key`.
    pub(crate) fn start(settings: Settings, tenants: impl FnOnce(&Authority, &Files) -> Vec<Tenant>) -> Self {
        let (authority, files) = (Authority::new("the clients' authority"), Files::new());
        let own = authority.issue(LISTENER);
        let [cert, key] = files.put_pair("own", &own);
        let settings = settings.set("listen.tls.cert", cert).set("listen.tls.key", key);
        let mut gateway = Gateway::prepare(settings, &tenants(&authority, &files), &[]);
        let (address, api) = (gateway.address, gateway.service.api);
        let tunnel = |to, protocols| Tunnel::to(to, Greeting::new(&authority, LISTENER, protocols));
        let (http_1, http_2, to_api) =
            (tunnel(address, HTTP_1), tunnel(address, HTTP_2), tunnel(api, HTTP_1));
        gateway.service.api = to_api.address;
        gateway.launch("");
        gateway.address = http_1.address;
        Self { gateway, address, api, http_1, http_2, _to_api: to_api, authority, own, files }
    }

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
