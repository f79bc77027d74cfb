//! The configuration: one TOML file, every value of which the environment may override (`TIERGATE__SECTION__KEY`), and
//! tenants, there and in files of their own.
//!
//! What comes out is checked: whoever holds [`Settings`] need not look again. Everything that is wrong is reported at
//! once. Each section has a file of its own, which states its keys, defaults and bounds; `conf/tiergate.toml` shows them
//! to operators. Must not know what the settings are used for.

/// A struct whose fields are read one after the other: every one of them, before one that is wrong gives up the whole. A
/// field may use those before it, and checks of several come last.
macro_rules! read_all {
    ($name:ident { $($field:ident: $read:expr),+ $(,)? } $(then $checks:block)?) => {{
        $(let $field = $read;)+
        $($checks)?
        Some($name { $($field: $field?),+ })
    }};
}

pub mod abuse;
pub mod chain;
pub mod console;
pub mod gateway;
pub mod keys;
pub mod listen;
pub mod log;
pub mod problem;
pub mod shutdown;
pub mod signature;
pub mod store;
pub mod tenants;
pub mod tiers;
pub mod traces;

mod choice;
mod document;
mod duration;
mod files;
mod location;
mod notes;
mod reader;
mod rpc_headers;
mod syntax;
mod tokens;
mod unknown;
mod written;

use std::path::Path;
use std::sync::Arc;

use toml::Table;

use crate::addresses::AddressRules;
use crate::config::abuse::AbuseSettings;
use crate::config::chain::ChainSettings;
use crate::config::console::ConsoleSettings;
use crate::config::document::Document;
use crate::config::gateway::GatewaySettings;
use crate::config::keys::KeySettings;
use crate::config::listen::Listen;
use crate::config::log::LogSettings;
use crate::config::notes::Notes;
pub use crate::config::notes::{Content, DEFAULT, NamedFile, VALUES_SHOWN_MAX, Value, Wanted};
use crate::config::problem::{Problem, Problems};
use crate::config::reader::Reader;
use crate::config::shutdown::ShutdownSettings;
use crate::config::signature::SignatureSettings;
use crate::config::store::StoreSettings;
use crate::config::tiers::TierSettings;
use crate::config::traces::TraceSettings;
use crate::domain::binding::Binding;
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
    /// The owner's page.
    pub console: ConsoleSettings,
    /// How requests are forwarded.
    pub gateway: GatewaySettings,
    /// How the process ends.
    pub shutdown: ShutdownSettings,
    /// The settings of traces.
    pub traces: TraceSettings,
    /// The settings of the log.
    pub log: LogSettings,
    /// Whose traffic the gateway takes: those of the file, then those of `tenants.d` in the order of its files' names. No
    /// two share an id or a host.
    pub tenants: Vec<Arc<Tenant>>,
    /// How many of them stand in `tenants.d`.
    pub folder_tenants: usize,
    /// True if a reload may leave `tenants.d`, or all of it, without tenants.
    pub allow_empty: bool,
    /// True if upstreams may be link-local.
    pub allow_link_local: bool,
}

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// Its settings.
    pub settings: Settings,
    /// The same as it was written, for people.
    pub values: Vec<Value>,
}

/// All that there is to say of a configuration.
#[derive(Debug)]
pub struct Survey {
    /// The settings; none if a problem is an error.
    pub settings: Option<Settings>,
    /// Errors and warnings.
    pub problems: Problems,
    /// The values that were read, in the order of the sections, as many as are wanted.
    pub values: Vec<Value>,
    /// The files that keys name, whatever is wrong elsewhere; none unless they are wanted. They have not been opened.
    pub files: Vec<NamedFile>,
}

impl Survey {
    /// Reads the file at `path` and the tenants beside it; `environment` is all variables of the process. Tenants are
    /// reloaded by calling it again: whatever is wrong anywhere then refuses all of it.
    pub fn of(path: &Path, environment: impl Iterator<Item = (String, String)>, wanted: Wanted) -> Self {
        match syntax::read_file(path) {
            Ok(text) => Self::read(Document::new(path, &text), environment, Some(path), wanted),
            Err(phrase) => Self::new(None, Notes::new(wanted, vec![Problem::new(path.display(), phrase)])),
        }
    }

    /// Of a file that is not TOML the rest is not read, and no tenant: half a file would seem to have other mistakes.
    fn read(
        document: Arc<Document>,
        environment: impl Iterator<Item = (String, String)>,
        path: Option<&Path>,
        wanted: Wanted,
    ) -> Self {
        let [of_tenant, _] = tenants::known();
        let (table, problems) = match syntax::table(&document) {
            Ok(table) => (table, None),
            Err(problems) => (Table::new(), Some(problems)),
        };
        let mut reader = Reader::new(document, table, environment, wanted);
        let settings = Settings::read(&mut reader, path.filter(|_| problems.is_none()));
        let Some(mut problems) = problems else { return Self::new(settings, reader.finish(&of_tenant)) };
        problems.extend(reader.unknown_variables());
        Self::new(None, Notes::new(wanted, problems))
    }

    fn new(settings: Option<Settings>, Notes { problems, entries, files, .. }: Notes) -> Self {
        let has_error = problems.iter().any(|problem| !problem.is_warning());
        let settings = settings.filter(|_| !has_error);
        Self { settings, problems: problems.into(), values: notes::values(entries), files }
    }

    /// The settings and their values.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them.
    pub fn loaded(self) -> Result<Loaded, Problems> {
        let Self { settings, problems, values, .. } = self;
        settings.map(|settings| Loaded { settings, values }).ok_or(problems)
    }

    /// The settings.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them.
    pub fn usable(self) -> Result<Settings, Problems> {
        self.settings.ok_or(self.problems)
    }
}

impl Settings {
    /// Reads the file at `path` and the tenants beside it, as [`Survey::of`] does.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn load(path: &Path, environment: impl Iterator<Item = (String, String)>) -> Result<Self, Problems> {
        Survey::of(path, environment, Wanted::Settings).usable()
    }

    /// Reads the text of a configuration file, which stands nowhere: there are no tenants beside it.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn parse(text: &str, environment: impl Iterator<Item = (String, String)>) -> Result<Self, Problems> {
        let document = Document::new(Path::new("tiergate.toml"), text);
        Survey::read(document, environment, None, Wanted::Settings).usable()
    }

    /// Reads the section of the listeners alone, whatever is wrong elsewhere and however many tenants there are: for
    /// whoever asks a running service. Nothing when a part of it can't be read.
    #[must_use]
    pub fn load_listen(path: &Path, environment: impl Iterator<Item = (String, String)>) -> Option<Listen> {
        let document = Document::new(path, &syntax::read_file(path).ok()?);
        let table = syntax::table(&document).ok()?;
        Listen::read(&mut Reader::new(document, table, environment, Wanted::Settings))
    }

    /// The addresses that upstreams may have.
    pub(crate) fn addresses(&self) -> AddressRules {
        let (listeners, allow_link_local) = (self.listen.all().collect(), self.allow_link_local);
        AddressRules { listeners, allow_link_local, networks: None }
    }

    /// The chain that the store is for.
    #[must_use]
    pub fn binding(&self) -> Binding {
        let ChainSettings { chain_id, contracts, development, .. } = &self.chain;
        Binding::new(*chain_id, contracts.identity, *development)
    }

    /// The sections that count at the start alone and are others here. Of `[listen]` certificates are read again, of
    /// `[log]` level and access.
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
            ("store", !self.store.is_alike(&other.store)),
            ("abuse", self.abuse != other.abuse),
            ("console", self.console != other.console),
            ("gateway", self.gateway != other.gateway),
            ("shutdown", self.shutdown != other.shutdown),
            ("traces", self.traces != other.traces),
            ("log", self.log.waits_for_restart(&other.log)),
        ];
        sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// True for a key whose value counts from the start of the process to its end. Tenants, certificates and
    /// which lines are logged are read again.
    #[must_use]
    pub fn counts_from_start(key: &str) -> bool {
        let is_of_tenant =
            ["tenants[", "tenants_rules["].iter().any(|begin| key.starts_with(begin)) || key.contains(": ");
        let is_read_again =
            matches!(key, "gateway.allow_empty" | "gateway.allow_link_local" | "log.level" | "log.access");
        !is_of_tenant && !key.starts_with("listen.tls.") && !is_read_again
    }

    /// Reads every section before it gives up on any.
    fn read(reader: &mut Reader, path: Option<&Path>) -> Option<Self> {
        let listen = Listen::read(reader);
        let chain = ChainSettings::read(reader);
        let tiers = TierSettings::read(reader);
        let signature = SignatureSettings::read(reader);
        if let (Some(chain), Some(signature)) = (&chain, &signature) {
            signature.check_name(reader, chain.development);
        }
        let keys = KeySettings::read(reader);
        let store = StoreSettings::read(reader);
        let abuse = AbuseSettings::read(reader);
        let console = ConsoleSettings::read(reader);
        let gateway = GatewaySettings::read(reader);
        let allow_empty = reader.boolean("gateway.allow_empty", false);
        let allow_link_local = reader.boolean("gateway.allow_link_local", false);
        let shutdown = ShutdownSettings::read(reader);
        let traces = TraceSettings::read(reader);
        let log = LogSettings::read(reader);
        let tenants = tenants::read(reader, listen.as_ref(), allow_link_local.unwrap_or(true), path);
        let (tenants, folder_tenants) = tenants.unzip();
        let are_reached = listen.as_ref().is_none_or(|listen| !listen.gateway.is_empty());
        if let (Some(count @ 1..), false) = (tenants.as_ref().map(Vec::len), are_reached) {
            let phrase =
                format!("is empty, and nobody reaches the tenants, {count} in all; write an address");
            reader.warn(&["listen.gateway"], phrase);
        }
        Some(Self {
            listen: listen?,
            chain: chain?,
            tiers: tiers?,
            signature: signature?,
            keys: keys?,
            store: store?,
            abuse: abuse?,
            console: console?,
            gateway: gateway?,
            shutdown: shutdown?,
            traces: traces?,
            log: log?,
            tenants: tenants?,
            folder_tenants: folder_tenants?,
            allow_empty: allow_empty?,
            allow_link_local: allow_link_local?,
        })
    }
}

#[cfg(test)]
mod tests;
