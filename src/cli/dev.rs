//! `tiergate dev`: a chain with sample agents, the store, the API, a gateway with sample tenants and the API behind them
//! in one process, and what to paste next.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use crate::app::reload::EarlyHangup;
use crate::app::source::Source;
use crate::app::{self, App};
use crate::cli::{BAD_CONFIGURATION, Failure, say};
use crate::dev::chain::DevChain;
use crate::dev::door::DevChainDoor;
use crate::dev::samples::{self, Deployment};
use crate::dev::upstream::SampleUpstream;
use crate::os::Os;
use crate::pipeline::readiness::Readiness;
use crate::telemetry::log;

/// The development chain's id: the one in the contract's signing domain.
const CHAIN_ID: u64 = 8004;

/// The host of the sample tenant for every agent.
const WEATHER_HOST: &str = "weather.example";

/// The host of the sample tenant for high tiers.
const VAULT_HOST: &str = "vault.example";

/// How often the service is asked whether it is ready, before what to paste is printed.
const READY_POLL: Duration = Duration::from_millis(20);

/// Start everything in one process for development.
#[derive(clap::Args)]
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
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin: SocketAddr,
    /// Where the development chain's JSON-RPC listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8545")]
    chain: SocketAddr,
    /// Start the chain alone, and print its addresses as one line of JSON.
    #[arg(long, conflicts_with = "only_upstream")]
    only_chain: bool,
    /// Start the sample upstream alone.
    #[arg(long)]
    only_upstream: bool,
}

impl Dev {
    /// Runs until it is told to stop.
    pub(super) fn run(self) -> Result<(), Failure> {
        let early_hangup = EarlyHangup::listen().map_err(Failure::new)?;
        if self.only_upstream {
            let _log = log::start().map_err(|why| Failure::new(why).with_code(BAD_CONFIGURATION))?;
            return app::alone::run_door("sample-upstream", self.upstream, SampleUpstream)
                .map_err(Failure::new);
        }
        let chain = Arc::new(DevChain::new(CHAIN_ID, Arc::new(Os::new())));
        let deployment = samples::deploy(&chain).map_err(Failure::new)?;
        let _log = log::start().map_err(|why| Failure::new(why).with_code(BAD_CONFIGURATION))?;
        if self.only_chain {
            say(format_args!("{}", self.facts(&deployment)))?;
            return app::alone::run_door("dev-chain", self.chain, DevChainDoor::new(chain))
                .map_err(Failure::new);
        }
        self.check_addresses()?;
        // Removed when this returns, with the store in it.
        let folder = tempfile::Builder::new().prefix("tiergate-dev-").tempdir().map_err(Failure::new)?;
        self.write_files(folder.path(), &deployment).map_err(Failure::new)?;
        let source = Source::at(&config_file(folder.path()));
        let settings = source.load().map_err(Failure::new)?;
        let mut app = App::new(&settings, source, early_hangup).map_err(Failure::new)?;
        app.add_door("dev-chain", self.chain, 1, DevChainDoor::new(chain)).map_err(Failure::new)?;
        app.add_door("sample-upstream", self.upstream, 1, SampleUpstream).map_err(Failure::new)?;
        let text = self.welcome(folder.path(), &deployment);
        app.add_chain_user("welcome", Welcome { text, readiness: app.readiness() });
        app.await_own_node(self.chain);
        app.run();
        Ok(())
    }

    /// The doors that the configuration doesn't know of must not stand where one of its own does.
    fn check_addresses(&self) -> Result<(), Failure> {
        let doors = [self.api, self.admin, self.gateway];
        for (name, address, others) in [
            ("--chain", self.chain, doors.as_slice()),
            ("--upstream", self.upstream, &[self.api, self.admin, self.gateway, self.chain]),
        ] {
            if others.contains(&address) {
                let message = format!("{name} is {address}, where another door listens");
                return Err(Failure::new(message).with_code(BAD_CONFIGURATION));
            }
        }
        Ok(())
    }

    /// What a script needs to know of the chain.
    fn facts(&self, deployment: &Deployment) -> serde_json::Value {
        serde_json::json!({
            "rpcUrl": format!("http://{}", self.chain),
            "chainId": CHAIN_ID,
            "identity": deployment.identity,
            "stakeVault": deployment.stake_vault,
            "reputation": deployment.reputation,
            "validation": deployment.validation,
            "organization": deployment.organization,
            "multicall": deployment.multicall,
        })
    }

    /// The configuration and the sample owners' keys, as files.
    fn write_files(&self, folder: &Path, deployment: &Deployment) -> std::io::Result<()> {
        for agent in &deployment.agents {
            fs::write(key_file(folder, agent.id), agent.key)?;
        }
        let config = format!(
            "[listen]\napi = \"{}\"\ngateway = [\"{}\"]\nadmin = \"{}\"\n\n[chain]\nrpc_urls = [\"http://{}\"]\nmulticall = \"{}\"\n\n\
             [chain.contracts]\nidentity = \"{}\"\nstake_vault = \"{}\"\nreputation = \"{}\"\nvalidation = \"{}\"\n\
             organization = \"{}\"\n\n[store.embedded]\npath = {:?}\n",
            self.api,
            self.gateway,
            self.admin,
            self.chain,
            deployment.multicall,
            deployment.identity,
            deployment.stake_vault,
            deployment.reputation,
            deployment.validation,
            deployment.organization,
            folder.join("data"),
        );
        let tenants = folder.join("tenants.d");
        fs::create_dir(&tenants)?;
        fs::write(tenants.join("weather.toml"), self.weather_tenant())?;
        fs::write(tenants.join("vault.toml"), self.vault_tenant())?;
        fs::write(config_file(folder), config)
    }

    /// A tenant that lets every verified agent in, and everybody to its public part.
    fn weather_tenant(&self) -> String {
        format!(
            "id = \"weather\"\nhosts = [\"{WEATHER_HOST}\"]\nupstreams = [\"{}\"]\n\n\
             [[routes]]\npath = \"/public/*\"\naccess = \"public\"\n",
            self.upstream
        )
    }

    /// A tenant for high tiers, with limits of its own.
    fn vault_tenant(&self) -> String {
        format!(
            "id = \"vault\"\nhosts = [\"{VAULT_HOST}\"]\nupstreams = [\"{}\"]\nmin_tier = 3\n\
             requests_per_minute = [5, 5, 5, 10]\n",
            self.upstream
        )
    }

    fn welcome(&self, folder: &Path, deployment: &Deployment) -> String {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("tiergate"));
        let program = program.display();
        let config = config_file(folder);
        let sign = |agent: u64| {
            let key_file = key_file(folder, agent);
            format!(
                "{program} sign --url http://{} --agent-id {agent} --key-file {}",
                self.api,
                key_file.display()
            )
        };
        let (api, kept) = (self.api, folder.join("key.json"));
        let kept = kept.display();
        let gateway = self.gateway;
        let key_of = format!("grep -o 'svc_live_v1_[0-9a-f]*' {kept}");
        let mut text = String::new();
        let _ = writeln!(text, "Tiergate is ready.\n");
        let _ = writeln!(text, "  API      http://{api}\n  gateway  http://{}", self.gateway);
        let _ = writeln!(text, "  upstream http://{}  (a sample API behind the gateway)", self.upstream);
        let _ = writeln!(text, "  metrics  http://{}/metrics", self.admin);
        let _ = writeln!(text, "  chain    http://{}  (chain id {CHAIN_ID}, in memory)", self.chain);
        let _ = writeln!(text, "  config   {}\n\nSample agents:", config.display());
        for agent in &deployment.agents {
            let _ = writeln!(text, "  agent {}  tier {}  owner {}", agent.id, agent.tier, agent.owner);
        }
        let _ = writeln!(
            text,
            "\nGenerate an API key for agent 2, signed by its owner:\n  {} | curl -s -d @- http://{api}/keys/generate | tee {kept}\n\
             \nVerify the agent with that key:\n  curl -s -d @{kept} http://{api}/verify\n\
             \nVerify agent 3 with its owner's signature:\n  {} | curl -s -d @- http://{api}/verify/signature\n\
             \nSee agent 5, which has no stake, refused:\n  {} | curl -s -d @- http://{api}/verify/signature\n\
             \nThrough the gateway, everybody may see the public part of the tenant \"weather\":\n  curl -s -H 'Host: {WEATHER_HOST}' http://{gateway}/public/forecast\n\
             \nThe rest is for agents, such as agent 2 with its key:\n  curl -s -H 'Host: {WEATHER_HOST}' -H \"X-API-Key: $({key_of})\" http://{gateway}/forecast\n\
             \nOr agent 3 with its owner's signature:\n  {} --headers | curl -s -H @- -H 'Host: {WEATHER_HOST}' http://{gateway}/forecast\n\
             \nThe tenant \"vault\" asks for tier 3; agent 2 has tier 2 and is refused:\n  curl -s -H 'Host: {VAULT_HOST}' -H \"X-API-Key: $({key_of})\" http://{gateway}/secrets\n\
             \nCtrl-C stops everything and forgets it.",
            sign(2),
            sign(3),
            sign(5),
            sign(3),
        );
        text
    }
}

/// Prints what to paste once it works.
struct Welcome {
    text: String,
    readiness: Arc<Readiness>,
}

#[async_trait]
impl BackgroundService for Welcome {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        while !self.readiness.report().await.is_ready() {
            tokio::select! {
                () = tokio::time::sleep(READY_POLL) => {}
                _ = shutdown.changed() => return,
            }
        }
        // Whoever does not read it does not stop the service.
        let _ = say(format_args!("{}", self.text));
    }
}

fn key_file(folder: &Path, agent: u64) -> PathBuf {
    folder.join(format!("agent-{agent}.key"))
}

fn config_file(folder: &Path) -> PathBuf {
    folder.join("tiergate.toml")
}
