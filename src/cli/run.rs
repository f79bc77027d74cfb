//! `tiergate run`: serve until a signal says to stop.

use std::path::Path;

use crate::app::App;
use crate::app::presence::Presence;
use crate::app::reload::EarlyHangup;
use crate::app::source::Source;
use crate::cli::check::load;
use crate::cli::{BAD_CONFIGURATION, Failure, VERSION};
use crate::config::Settings;
use crate::telemetry::log;

/// Serves as the file says.
pub(super) fn run(config: &Path) -> Result<(), Failure> {
    let early_hangup = EarlyHangup::listen()?;
    let source = Source::at(config);
    let (settings, warnings) = load(&source)?;
    let _log = log::start().map_err(|why| Failure::new(why).with_code(BAD_CONFIGURATION))?;
    warnings.log_warnings();
    let app = App::new(&settings, source, early_hangup)?;
    let presence = Presence::announce(config, &settings.listen);
    if let Err(why) = &presence {
        tracing::warn!("`tiergate health` has to ask where the configuration says, which may change: {why}");
    }
    announce(&settings);
    app.run();
    tracing::info!("stopped");
    Ok(())
}

fn announce(settings: &Settings) {
    tracing::info!(
        version = VERSION,
        api = %settings.listen.api,
        gateway = %settings.listen.gateway.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        tenants = settings.tenants.len(),
        admin = %settings.listen.admin,
        nodes = %settings.chain.rpc_urls.iter().map(|url| url.origin()).collect::<Vec<_>>().join(" "),
        "serving",
    );
}
