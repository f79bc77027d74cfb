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
mod duration;
mod files;
mod location;
mod notes;
mod reader;
mod refused;
mod rpc_headers;
mod survey;
mod tokens;
mod tree;
mod unknown;
mod versions;
mod written;

use std::path::Path;
use std::sync::Arc;

use crate::addresses::AddressRules;
use crate::config::abuse::AbuseSettings;
use crate::config::chain::ChainSettings;
use crate::config::console::ConsoleSettings;
use crate::config::gateway::GatewaySettings;
use crate::config::keys::KeySettings;
use crate::config::listen::Listen;
use crate::config::location::Location;
use crate::config::log::LogSettings;
use crate::config::notes::Notes;
pub use crate::config::notes::{Content, DEFAULT, NamedFile, VALUES_SHOWN_MAX, Value, Wanted};
use crate::config::problem::Problems;
use crate::config::reader::Reader;
pub use crate::config::refused::{Beside, Nobody, Refused};
use crate::config::shutdown::ShutdownSettings;
use crate::config::signature::SignatureSettings;
use crate::config::store::StoreSettings;
pub use crate::config::survey::Survey;
use crate::config::tenants::rules::Rules;
use crate::config::tenants::tenant::Claimant;
use crate::config::tiers::TierSettings;
use crate::config::traces::TraceSettings;
use crate::domain::binding::Binding;
use crate::domain::host::HostPattern;
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
    /// The files that these stand in, as problems name them.
    pub tenant_files: Vec<Arc<str>>,
    /// Hosts of tenants that can't be served. They are nobody's: no wildcard of another tenant takes them.
    pub unserved_hosts: Vec<HostPattern>,
    /// True if a start is refused when a tenant can't be served.
    pub strict_tenants: bool,
    /// True if a reload may leave `tenants.d`, or all of it, without tenants.
    pub allow_empty: bool,
    /// True if upstreams may be link-local.
    pub allow_link_local: bool,
    /// The rules for tenants of `tenants.d`.
    pub tenants_rules: Rules,
}

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// Its settings.
    pub settings: Settings,
    /// The same as it was written, for people.
    pub values: Vec<Value>,
    /// Files that are not used as they are.
    pub refused: Vec<Refused>,
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
        Survey::of_text(text, environment, Wanted::Settings).usable()
    }

    /// Reads the section of the listeners alone, whatever is wrong elsewhere and however many tenants there are: for
    /// whoever asks a running service. Nothing when a part of it can't be read.
    #[must_use]
    pub fn load_listen(path: &Path, environment: impl Iterator<Item = (String, String)>) -> Option<Listen> {
        let file = tree::name_of(path);
        let table = tree::parse(&file, &tree::read_file(path).ok()?).ok()?;
        let (location, notes) = (Location::of_file(file, None), Notes::new(Wanted::Settings));
        Listen::read(&mut Reader::new(location, table, environment, notes))
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
        let is_read_again = matches!(
            key,
            "gateway.allow_empty"
                | "gateway.allow_link_local"
                | "gateway.strict_tenants"
                | "log.level"
                | "log.access"
        );
        let is_of_tenant = notes::is_of_tenant(key) || key.starts_with("tenants_rules[");
        !is_of_tenant && !key.starts_with("listen.tls.") && !is_read_again
    }

    /// The tenants of the configuration file.
    #[must_use]
    pub fn main_tenants(&self) -> &[Arc<Tenant>] {
        self.tenants.get(..self.tenants.len().saturating_sub(self.folder_tenants)).unwrap_or_default()
    }

    /// Each file of `tenants.d` with its tenant.
    pub fn of_folder(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Tenant>)> {
        let tenants = self.tenants.get(self.main_tenants().len()..).unwrap_or_default();
        self.tenant_files.iter().zip(tenants)
    }

    /// Reads every section of the file before it gives up on any: all but tenants, the listeners though other sections are wrong,
    /// and the tenants.
    fn read(reader: &mut Reader) -> (Option<Self>, Option<Listen>, Vec<Claimant>) {
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
        let strict_tenants = reader.boolean("gateway.strict_tenants", false);
        let allow_link_local = reader.boolean("gateway.allow_link_local", false);
        let shutdown = ShutdownSettings::read(reader);
        let traces = TraceSettings::read(reader);
        let log = LogSettings::read(reader);
        let tenants_rules = Rules::read(reader);
        let tenants = tenants::read(reader, listen.as_ref(), allow_link_local.unwrap_or(true));
        let listeners = listen.clone();
        let sections = || {
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
                tenants: Vec::new(),
                folder_tenants: 0,
                tenant_files: Vec::new(),
                unserved_hosts: Vec::new(),
                strict_tenants: strict_tenants?,
                allow_empty: allow_empty?,
                allow_link_local: allow_link_local?,
                tenants_rules: tenants_rules?,
            })
        };
        let settings = sections().filter(|_| tenants.is_some());
        (settings, listeners, tenants.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
