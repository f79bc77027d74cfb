//! `tiergate run`: serve until a signal says to stop.

use std::net::SocketAddr;

use crate::app::handover::{Handover, TAKE_OVER};
use crate::app::{App, RunError, lifecycle::EarlySignals};
use crate::cli::{ConfigFile, FAILED, Failure, INTERNAL_ERROR, VERSION, check::load_to_serve};
use crate::config::ConfigSource;
use crate::telemetry::log;

/// Serve, as the configuration file says.
#[derive(clap::Args)]
pub(super) struct Run {
    #[command(flatten)]
    file: ConfigFile,
    /// Replace the process at standard input; only that one writes it.
    #[arg(long = TAKE_OVER, hide = true)]
    takes_over: bool,
}

pub(super) fn run(arguments: &Run) -> Result<(), Failure> {
    let config = &arguments.file.config;
    let early = EarlySignals::listen()?;
    // There is one thread only.
    let handover = if arguments.takes_over { Handover::from_predecessor() } else { Handover::from_systemd() };
    let handover = handover.map_err(|why| format!("cannot use the sockets that were handed over: {why}"))?;
    let source = ConfigSource::at(config);
    let (loaded, warnings) = load_to_serve(&source)?;
    let settings = &loaded.settings;
    let (rules, is_json) = (settings.live.log.clone(), settings.fixed.log.is_json);
    let _log = log::start(rules, is_json).map_err(Failure::unusable)?;
    source.log_warnings(&warnings);
    let app = App::new(&loaded, source, early, handover)?;
    tracing::info!(
        version = VERSION,
        api = %settings.fixed.listen.api,
        owners = %listed(&settings.fixed.listen.owners),
        gateway = %listed(&settings.fixed.listen.gateway),
        authz = %listed(&settings.fixed.listen.authz),
        tenants = settings.live.tenants.len(),
        admin = %settings.fixed.listen.admin,
        nodes = %settings.fixed.chain.pool.urls.iter().map(|url| url.origin()).collect::<Vec<_>>().join(" "),
        "serving",
    );
    ended(app.run())?;
    tracing::info!("stopped");
    Ok(())
}

/// The exit code of a process that has served.
pub(super) fn ended(outcome: Result<(), RunError>) -> Result<(), Failure> {
    outcome.map_err(|why| {
        let code = match &why {
            RunError::DeadThread(_) => INTERNAL_ERROR,
            RunError::Failed(_) => FAILED,
        };
        Failure::new(why).with_code(code)
    })
}

fn listed(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
