//! `tiergate health`: whether the service that runs with this configuration answers. For containers, which have no other
//! client in them.
//!
//! Must not read more of the configuration than `[listen]`: it is called every few seconds, whatever is wrong elsewhere.

use std::{net::SocketAddr, time::Duration};

use reqwest::{ClientBuilder, Method};

use crate::addresses::reached;
use crate::cli::{ConfigFile, Failure, client::exchange, say};
use crate::config::{Settings, environment, listen::Listen, listen::Listener};

/// How long the answer may take; `/readyz` takes 2 s when something does not answer.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Ask the service that runs with a configuration file whether it is alive, or ready; exit code 1 if it is not.
#[derive(clap::Args)]
pub(super) struct Health {
    #[command(flatten)]
    file: ConfigFile,
    /// Ask whether it can verify (/readyz), and not only whether it runs (/livez).
    #[arg(long)]
    ready: bool,
}

impl Health {
    /// Prints what it answers. Anything but 200 is a failure.
    pub(super) fn run(self) -> Result<(), Failure> {
        let config = &self.file.config;
        let listen = Settings::load_listen(config, environment()).ok_or_else(|| {
            let file = config.display();
            Failure::unusable(format!(
                "[listen] of {file} can't be read; `tiergate check` says what is wrong"
            ))
        })?;
        let url = format!("{}{}", asked(&listen), if self.ready { "/readyz" } else { "/livez" });
        // It asks its own machine and says nothing secret; the certificate is for the names that clients use.
        let client = ClientBuilder::new().danger_accept_invalid_certs(true).no_proxy().timeout(TIME_MAX);
        let (status, body) = exchange(client, Method::GET, &url, None)
            .map_err(|(cause, _)| format!("{url} does not answer: {cause}"))?;
        say(format_args!("{body}"))?;
        if status == 200 { Ok(()) } else { Err(Failure::new(format!("{url} answers {}", status.as_u16()))) }
    }
}

/// The API's URL as this machine reaches it, or the admin listener's where the API takes connections from proxies alone.
fn asked(listen: &Listen) -> String {
    let is_for_proxies = listen.proxy_protocol.contains(&Listener::Api);
    let address = if is_for_proxies { listen.admin } else { listen.api };
    let scheme = if listen.tls && !is_for_proxies { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(reached(address.ip()), address.port()))
}

#[cfg(test)]
mod tests {
    use super::Settings;

    fn asked(listen: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiergate.toml");
        std::fs::write(&path, format!("[listen]\n{listen}\n[chain]\nsurprise = true\nbroken = [1, 2\n"))
            .unwrap();
        super::asked(&Settings::load_listen(&path, std::iter::empty()).unwrap())
    }

    #[test]
    fn the_listener_is_asked_where_this_machine_reaches_it_whatever_else_is_wrong() {
        let tls = "[listen.tls]\ncert = \"c\"\nkey = \"k\"";
        for (listen, expected) in [
            ("", "http://127.0.0.1:8080"),
            ("api = \"0.0.0.0:81\"", "http://127.0.0.1:81"),
            ("api = \"[::]:81\"", "http://[::1]:81"),
            ("api = \"192.0.2.1:81\"", "http://192.0.2.1:81"),
            (tls, "https://127.0.0.1:8080"),
            (
                &format!("trusted_proxies = [\"10.0.0.0/8\"]\nproxy_protocol = [\"api\"]\n{tls}"),
                "http://127.0.0.1:8082",
            ),
        ] {
            assert_eq!(asked(listen), expected);
        }
    }
}
