//! The configuration: one TOML file, every value of which the environment may override (`TIERGATE__SECTION__KEY`), and
//! tenants, there and in files of their own.
//!
//! What comes out is checked: whoever holds [`Settings`] need not look again. Everything that is wrong is reported at
//! once. Each section has a file of its own, which states its keys, defaults and bounds; `conf/tiergate.toml` shows them
//! to operators. Must not know what the settings are used for.

pub mod abuse;
pub mod chain;
pub mod gateway;
pub mod keys;
pub mod listen;
pub mod problem;
pub mod signature;
pub mod store;
pub mod tenants;
pub mod tiers;

mod choice;
mod duration;
mod files;
mod location;
mod reader;
mod rpc_headers;
mod syntax;
mod tokens;
mod unknown;
mod written;

use std::path::Path;
use std::sync::Arc;

use crate::config::abuse::AbuseSettings;
use crate::config::chain::ChainSettings;
use crate::config::gateway::GatewaySettings;
use crate::config::keys::KeySettings;
use crate::config::listen::Listen;
use crate::config::problem::{Problem, Problems};
use crate::config::reader::Reader;
use crate::config::signature::SignatureSettings;
use crate::config::store::StoreSettings;
use crate::config::tiers::TierSettings;
use crate::domain::tenant::Tenant;

/// The whole configuration, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where requests come in.
    pub listen: Listen,
    /// The chain and its registries.
    pub chain: ChainSettings,
    /// What each trust tier asks for and gives.
    pub tiers: TierSettings,
    /// What owners sign and how long it is good for.
    pub signature: SignatureSettings,
    /// API keys and their management.
    pub keys: KeySettings,
    /// Where keys and nonces are kept.
    pub store: StoreSettings,
    /// Protection against guessing.
    pub abuse: AbuseSettings,
    /// How requests are forwarded.
    pub gateway: GatewaySettings,
    /// Whose traffic the gateway takes: those of the file, then those of `tenants.d` in the order of its files' names. No
    /// two share an id or a host.
    pub tenants: Vec<Arc<Tenant>>,
    /// How many of them stand in `tenants.d`.
    pub folder_tenants: usize,
    /// True if a reload may leave `tenants.d`, or all of it, without tenants.
    pub allow_empty: bool,
}

impl Settings {
    /// Reads the file at `path` and the tenants beside it; `environment` is all variables of the process. Tenants are
    /// reloaded by calling it again: whatever is wrong anywhere then refuses all of it.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn load(path: &Path, environment: impl Iterator<Item = (String, String)>) -> Result<Self, Problems> {
        let text = syntax::read_file(path).map_err(|phrase| Problem::new(path.display(), phrase))?;
        Self::check(&text, environment, Some(path))
    }

    /// Reads the text of a configuration file, which stands nowhere: there are no tenants beside it.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn parse(text: &str, environment: impl Iterator<Item = (String, String)>) -> Result<Self, Problems> {
        Self::check(text, environment, None)
    }

    /// Reads the section of the store alone, whatever is wrong elsewhere: for whoever looks at the files that it names.
    /// Nothing when a part of it can't be read.
    #[must_use]
    pub fn load_store(
        path: &Path,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Option<StoreSettings> {
        StoreSettings::read(&mut reader_of(path, environment)?)
    }

    /// Reads the section of the listeners alone, whatever is wrong elsewhere and however many tenants there are: for
    /// whoever asks a running service. Nothing when a part of it can't be read.
    #[must_use]
    pub fn load_listen(path: &Path, environment: impl Iterator<Item = (String, String)>) -> Option<Listen> {
        Listen::read(&mut reader_of(path, environment)?)
    }

    /// The sections that count at the start alone and are others here. Of `[listen]` certificates are read again.
    #[must_use]
    pub fn sections_that_differ(&self, other: &Self) -> Vec<&'static str> {
        let listen =
            |Self { listen, .. }: &Self| (listen.tls.is_some(), Listen { tls: None, ..listen.clone() });
        let sections = [
            ("listen", listen(self) != listen(other)),
            ("chain", self.chain != other.chain),
            ("tiers", self.tiers != other.tiers),
            ("signature", self.signature != other.signature),
            ("keys", self.keys != other.keys),
            ("store", self.store != other.store),
            ("abuse", self.abuse != other.abuse),
            ("gateway", self.gateway != other.gateway),
        ];
        sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    fn check(
        text: &str,
        environment: impl Iterator<Item = (String, String)>,
        path: Option<&Path>,
    ) -> Result<Self, Problems> {
        let mut reader = Reader::new(syntax::table(text)?, environment);
        let settings = Self::read(&mut reader, path);
        reader.finish(settings)
    }

    /// Reads every section before it gives up on any.
    fn read(reader: &mut Reader, path: Option<&Path>) -> Option<Self> {
        let listen = Listen::read(reader);
        let chain = ChainSettings::read(reader);
        let tiers = TierSettings::read(reader);
        let signature = SignatureSettings::read(reader);
        let keys = KeySettings::read(reader);
        let store = StoreSettings::read(reader);
        let abuse = AbuseSettings::read(reader);
        let gateway = GatewaySettings::read(reader);
        let allow_empty = reader.boolean("gateway.allow_empty", false);
        let tenants = tenants::read(reader, listen.as_ref(), path);
        let (tenants, folder_tenants) = tenants.unzip();
        Some(Self {
            listen: listen?,
            chain: chain?,
            tiers: tiers?,
            signature: signature?,
            keys: keys?,
            store: store?,
            abuse: abuse?,
            gateway: gateway?,
            tenants: tenants?,
            folder_tenants: folder_tenants?,
            allow_empty: allow_empty?,
        })
    }
}

fn reader_of(path: &Path, environment: impl Iterator<Item = (String, String)>) -> Option<Reader> {
    Some(Reader::new(syntax::table(&syntax::read_file(path).ok()?).ok()?, environment))
}

#[cfg(test)]
mod tests;
