//! `tiergate-dev`: a chain with sample agents, the store, the API, a gateway with sample tenants and the API behind them
//! in one process, and what to paste next.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::{fs, io, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path, sync::Arc};

use clap::Parser;
use serde_json::Value;

use crate::app::{App, StartError, dev::run_listener, handover::Handover, lifecycle::EarlySignals};
use crate::cli::output::{quoted, with};
use crate::cli::{Failure, VERSION, complain, run::ended, say};
use crate::config::{ConfigSource, VALUES_SHOWN_MAX, environment, no_probe};
use crate::dev::samples::{self, SampleAgent};
use crate::dev::service::{DevChainService, SampleUpstream};
use crate::dev::{chain::DevChain, erc8004};
use crate::domain::{LogRules, WebOrigin};
use crate::os::Os;
use crate::telemetry::log;

/// The development chain's id: the one in the contract's signing domain.
const CHAIN_ID: u64 = 8004;

/// Start everything in one process for development: a chain with sample agents, store, API, and a gateway in front of a
/// sample API.
#[derive(Parser)]
#[command(name = "tiergate-dev", version = VERSION, max_term_width = 100)]
pub(super) struct Dev {
    /// Where the API listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    api: SocketAddr,
    /// Where the gateway listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    gateway: SocketAddr,
    /// Where the sample upstream behind the gateway listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
    upstream: SocketAddr,
    /// Where metrics are scraped.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8082")]
    admin: SocketAddr,
    /// Where the development chain's JSON-RPC listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8545")]
    chain: SocketAddr,
    /// The registries on the chain: those of the documentation, with a stake vault, or ERC-8004's.
    #[arg(
        long,
        value_parser = ["documented", "erc8004"],
        value_name = "SET",
        default_value = "documented",
        conflicts_with = "only_upstream"
    )]
    registries: String,
    /// Start the chain alone, and print its addresses as one line of JSON.
    #[arg(long, conflicts_with = "only_upstream")]
    only_chain: bool,
    /// Start the sample upstream alone.
    #[arg(long)]
    only_upstream: bool,
}

impl Dev {
    pub(super) fn run(self) -> Result<(), Failure> {
        let early = EarlySignals::listen()?;
        let _log = log::start(LogRules::default(), false).map_err(Failure::unusable)?;
        if self.only_upstream {
            return ended(
                run_listener("upstream", self.upstream, SampleUpstream, early).map_err(not_started)?,
            );
        }
        let chain = Arc::new(DevChain::new(CHAIN_ID, Arc::new(Os::new())));
        let (facts, agents) = self.deploy(&chain)?;
        if self.only_chain {
            say(format_args!("{facts}"))?;
            return ended(
                run_listener("chain", self.chain, DevChainService(chain), early).map_err(not_started)?,
            );
        }
        let mut names = HashMap::new();
        for (name, address) in self.addresses() {
            if let Some(other) = names.insert(address, name) {
                return Err(Failure::unusable(format!("--{other} and --{name} are both {address}")));
            }
        }
        // The configuration below is that of the flags alone.
        let names = environment().map(|(name, _)| name).filter(|name| name.starts_with("TIERGATE__"));
        let names = names.collect::<Vec<_>>().join(" ");
        if !names.is_empty() {
            complain(format_args!("tiergate-dev takes flags and ignores the environment's {names}"));
        }
        // Removed when this returns, with the store in it.
        let folder = tempfile::Builder::new().prefix("tiergate-dev-").tempdir()?;
        let values = self.values(folder.path(), facts, &agents)?;
        write_files(folder.path(), &agents, &values)?;
        let source = ConfigSource::alone(&folder.path().join("tiergate.toml"));
        let report = source.read(VALUES_SHOWN_MAX, None, &mut no_probe);
        source.log_warnings(&report.problems);
        let loaded = report.whole()?;
        let mut app = App::new(&loaded, source, early, Handover::default()).map_err(not_started)?;
        app.add_listener("chain", self.chain, DevChainService(chain)).map_err(not_started)?;
        app.add_listener("upstream", self.upstream, SampleUpstream).map_err(not_started)?;
        let text = fill(include_str!("dev/welcome.txt"), &values);
        let addresses = self.addresses().map(|(_, address)| address).to_vec();
        ended(app.run_with_node(self.chain, addresses, move || {
            // Its failure does not stop the service.
            let _ = say(format_args!("{text}"));
        }))
    }

    /// Deploys the registries, with sample agents. The facts that a script needs are the addresses, by the names of their keys in the
    /// configuration.
    fn deploy(&self, chain: &DevChain) -> Result<(Value, Vec<SampleAgent>), Failure> {
        let (facts, agents) = if self.registries == "erc8004" {
            let on = erc8004::deploy(chain)?;
            (serde_json::to_value(&on)?, on.agents)
        } else {
            let on = samples::deploy(chain)?;
            (serde_json::to_value(&on)?, on.agents)
        };
        Ok((with(facts, "rpcUrl", Some(format!("http://{}", self.chain))), agents))
    }

    /// The addresses, by the names of their flags.
    fn addresses(&self) -> [(&'static str, SocketAddr); 5] {
        let Self { api, gateway, admin, chain, upstream, .. } = *self;
        [("api", api), ("gateway", gateway), ("admin", admin), ("chain", chain), ("upstream", upstream)]
    }

    /// The values of the names in braces in the files of `dev/`.
    fn values(&self, folder: &Path, facts: Value, agents: &[SampleAgent]) -> Result<Value, Failure> {
        let agents = agents.iter();
        let agents: Vec<String> = agents
            .map(|agent| format!("  agent {}  tier {}  owner {}", agent.id, agent.tier, agent.owner))
            .collect();
        let (local, port) = (IpAddr::from(Ipv4Addr::LOCALHOST), self.api.port());
        let origins = [self.api, SocketAddr::new(local, port)].map(|address| format!("http://{address}"));
        let origins = origins.into_iter().chain([format!("http://localhost:{port}")]);
        let origins = origins.filter_map(|url| Some(WebOrigin::parse(&url).ok()?.as_str().to_owned()));
        let gateway = match self.gateway.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        // ERC-8004 has no organizations.
        let organization = facts.get("organization");
        let organizations = organization.map(|at| format!("organization = {at}")).unwrap_or_default();
        // The one beside this program, or that of the shell's path.
        let program = std::env::current_exe()?.with_file_name("tiergate");
        let program = if program.is_file() { program } else { "tiergate".into() };
        let others = [
            ("agents", agents.join("\n")),
            ("organizations", organizations),
            ("registries", self.registries.clone()),
            ("chainForBrowsers", for_browsers(self.chain)),
            ("gatewayForBrowsers", for_browsers(self.gateway)),
            ("apiOrigins", list(origins.collect())),
            ("weatherHosts", list(["weather.example".to_owned(), "localhost".to_owned(), gateway].into())),
            ("program", quoted(&program.to_string_lossy())),
            ("folder", folder.display().to_string()),
        ];
        let addresses = self.addresses().map(|(name, address)| (name, address.to_string()));
        let all = addresses.into_iter().chain(others);
        Ok(all.fold(facts, |values, (name, value)| with(values, name, Some(value))))
    }
}

/// Names the flag of an address in the place of its key.
fn not_started(error: StartError) -> Failure {
    Failure::new(error.to_string().replace("(listen.", "(--"))
}

/// The configuration and the sample owners' keys, as files.
fn write_files(folder: &Path, agents: &[SampleAgent], values: &Value) -> io::Result<()> {
    for agent in agents {
        let file = folder.join(format!("agent-{}.key", agent.id));
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(file)?;
        file.write_all(agent.key.as_bytes())?;
    }
    fs::create_dir(folder.join("tenants.d"))?;
    for (name, text) in [
        ("tiergate.toml", include_str!("dev/tiergate.toml")),
        ("tenants.d/weather.toml", include_str!("dev/weather.toml")),
        ("tenants.d/vault.toml", include_str!("dev/vault.toml")),
    ] {
        fs::write(folder.join(name), fill(text, values))?;
    }
    Ok(())
}

/// The URL of a listener, or none: browsers can't connect to an address that stands for all of a machine's.
fn for_browsers(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { String::new() } else { format!("http://{address}") }
}

/// The items of an array of TOML.
fn list(items: BTreeSet<String>) -> String {
    items.into_iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ")
}

/// A text with the values of the names in braces.
fn fill(text: &str, values: &Value) -> String {
    values.as_object().into_iter().flatten().fold(text.to_owned(), |text, (name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.replace(&format!("{{{name}}}"), &value)
    })
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::{CHAIN_ID, Dev, fill};
    use crate::dev::chain::DevChain;
    use crate::os::Os;

    /// The configuration for these addresses of gateway and chain.
    fn configuration(gateway: &str, chain: &str) -> String {
        let dev = Dev {
            api: "127.0.0.1:8080".parse().unwrap(),
            gateway: gateway.parse().unwrap(),
            upstream: "127.0.0.1:9000".parse().unwrap(),
            admin: "127.0.0.1:8082".parse().unwrap(),
            chain: chain.parse().unwrap(),
            registries: "documented".to_owned(),
            only_chain: false,
            only_upstream: false,
        };
        let chain = DevChain::new(CHAIN_ID, Arc::new(Os::new()));
        let (facts, agents) = dev.deploy(&chain).unwrap();
        let values = dev.values(Path::new("/tmp"), facts, &agents).unwrap();
        fill(include_str!("dev/tiergate.toml"), &values)
    }

    #[test]
    fn the_page_is_given_no_address_that_browsers_cannot_connect_to() {
        let keys = ["\nrpc_url", "\ngateway_url", "\ndevelopment_rpc_url"];
        for (gateway, chain, expected) in [
            (
                "127.0.0.1:8000",
                "[::1]:8545",
                ["http://[::1]:8545", "http://127.0.0.1:8000", "http://[::1]:8545"],
            ),
            ("0.0.0.0:8000", "127.0.0.1:8545", ["http://127.0.0.1:8545", "", "http://127.0.0.1:8545"]),
            ("127.0.0.1:8000", "[::]:8545", ["", "http://127.0.0.1:8000", ""]),
        ] {
            let text = configuration(gateway, chain);
            for (key, url) in keys.iter().zip(expected) {
                assert!(text.contains(&format!("{key} = {url:?}\n")), "{key} of {gateway}, {chain}: {text}");
            }
        }
    }
}
