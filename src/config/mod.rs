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

/// A section with its settings, each with its type and how it is read. All are read as with [`read_all`].
macro_rules! settings {
    (
        $(#[$doc:meta])+
        $name:ident($reader:ident) {
            $($(#[$about:meta])+ $field:ident: $type:ty = $read:expr,)+
        }
        $(then $checks:block)?
    ) => {
        $(#[$doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$about])+ pub $field: $type,)+
        }

        impl $name {
            pub(super) fn read($reader: &mut $crate::config::reader::Reader) -> Option<Self> {
                $(let $field: Option<$type> = $read;)+
                $($checks)?
                Some(Self { $($field: $field?),+ })
            }
        }
    };
}

pub mod abuse;
pub mod assertion;
pub mod authz;
pub mod chain;
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
mod console;
mod duration;
mod files;
mod location;
mod notes;
mod reader;
mod refused;
mod rpc_headers;
mod survey;
mod tier_sources;
mod tokens;
mod tree;
mod unknown;
mod versions;
mod web_bot_auth;
mod written;

use std::path::Path;
use std::sync::Arc;

use crate::addresses::AddressRules;
use crate::config::abuse::AbuseSettings;
use crate::config::assertion::AssertionSettings;
use crate::config::authz::AuthzSettings;
use crate::config::chain::ChainSettings;
use crate::config::gateway::GatewaySettings;
use crate::config::keys::KeySettings;
use crate::config::listen::Listen;
use crate::config::location::Location;
use crate::config::log::LogSettings;
use crate::config::notes::Notes;
pub use crate::config::notes::{Content, DEFAULT, NamedFile, VALUES_SHOWN_MAX, Value};
use crate::config::problem::Problems;
use crate::config::reader::Reader;
pub use crate::config::refused::{Beside, Nobody, Refused};
use crate::config::shutdown::ShutdownSettings;
use crate::config::signature::SignatureSettings;
use crate::config::store::StoreSettings::{self, Embedded};
pub use crate::config::survey::Survey;
use crate::config::tenants::neighbours::Lacks;
use crate::config::tenants::rules::Rules;
use crate::config::tenants::tenant::Claimant;
use crate::config::tiers::TierSettings;
use crate::config::traces::TraceSettings;
use crate::domain::binding::Binding;
use crate::domain::bot::BotDomains;
use crate::domain::console::ConsoleSettings;
use crate::domain::host::HostPattern;
use crate::domain::rpc_url::RpcUrl;
use crate::domain::tenant::Tenant;

/// Makes [`Settings`] of all sections, each with its type.
macro_rules! sections {
    ($($(#[$doc:meta])+ $section:ident: $type:ty;)+) => {
        /// The whole configuration, checked.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            $($(#[$doc])+ pub $section: $type,)+
            /// The tenants of the gateway: those of the file, then those of `tenants.d` in the order of its files' names.
            /// No two share an id or a host.
            pub tenants: Vec<Arc<Tenant>>,
            /// The files that the last of them stand in, as problems name them.
            pub tenant_files: Vec<Arc<str>>,
            /// Hosts of tenants that can't be served. They are nobody's: no wildcard of another tenant takes them.
            pub unserved_hosts: Vec<HostPattern>,
        }

        impl Settings {
            /// The sections that count at the start alone and are others here.
            pub fn sections_that_differ(&self, other: &Self) -> Vec<&'static str> {
                let own = self.clone().read_again_as(other);
                let sections = [$((own.$section != other.$section).then_some(stringify!($section))),+];
                sections.into_iter().flatten().collect()
            }
        }

        /// The sections that could be read.
        struct Sections {
            $($section: Option<$type>,)+
        }

        impl Sections {
            /// Reads every section of the file before it gives up on any.
            fn read(reader: &mut Reader) -> Self {
                Self { $($section: <$type>::read(reader),)+ }
            }

            /// Settings without tenants.
            fn whole(self) -> Option<Settings> {
                Some(Settings {
                    $($section: self.$section?,)+
                    tenants: Vec::new(),
                    tenant_files: Vec::new(),
                    unserved_hosts: Vec::new(),
                })
            }
        }
    };
}

sections! {
    /// Where requests come in.
    listen: Listen;
    /// The chain and its registries.
    chain: ChainSettings;
    /// What each trust tier asks for and gives.
    tiers: TierSettings;
    /// What owners sign and how long it is good for.
    signature: SignatureSettings;
    /// API keys and their management.
    keys: KeySettings;
    /// Where keys and nonces are kept.
    store: StoreSettings;
    /// Protection against guessing.
    abuse: AbuseSettings;
    /// The domains whose bots are known.
    web_bot_auth: BotDomains;
    /// How other gateways prove that they may ask.
    authz: AuthzSettings;
    /// The owner's page.
    console: ConsoleSettings;
    /// How requests are forwarded.
    gateway: GatewaySettings;
    /// Who signs assertions, which is read again.
    assertion: AssertionSettings;
    /// How the process ends.
    shutdown: ShutdownSettings;
    /// The settings of traces.
    traces: TraceSettings;
    /// The settings of the log.
    log: LogSettings;
    /// The rules for tenants of `tenants.d`, which are read again.
    tenants_rules: Rules;
}

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// Its settings.
    pub settings: Settings,
    /// The same as it was written, for people, in the order of the sections; as many values as were wanted.
    pub values: Vec<Value>,
    /// Files that are not used as they are, in the order of their names, the configuration file first.
    pub refused: Vec<Refused>,
}

impl Settings {
    /// Reads the text of a configuration file, which stands nowhere: there are no tenants beside it. Or says everything that is
    /// wrong with it.
    pub fn parse(text: &str, environment: impl Iterator<Item = (String, String)>) -> Result<Self, Problems> {
        Survey::of_text(text, environment, 0).whole().map(|loaded| loaded.settings)
    }

    /// Reads the section of the listeners alone, whatever is wrong elsewhere, even where the file is no TOML: a running service
    /// keeps its former configuration, and somebody asks whether it answers. Nothing when a part of it can't be read.
    pub fn load_listen(path: &Path, environment: impl Iterator<Item = (String, String)>) -> Option<Listen> {
        let file = tree::name_of(path);
        let (table, _) = tree::recover(&file, &tree::read_file(path).ok()?);
        let (location, notes) = (Location::of_file(file, None), Notes::default());
        Listen::read(&mut Reader::new(location, table, environment, notes))
    }

    /// The addresses that upstreams may have.
    pub(crate) fn addresses(&self) -> AddressRules {
        let (listeners, allow_link_local) = (self.listen.all().collect(), self.gateway.allow_link_local);
        AddressRules { listeners, allow_link_local, networks: None }
    }

    /// The service's name in the types of changes of keys; `None`: they are signed as verifications are.
    pub(crate) fn key_service(&self) -> Option<&str> {
        let public_url = self.keys.public_url.as_ref().map(RpcUrl::base);
        self.signature.service_name.as_deref().or(public_url).filter(|_| self.signature.has_own_types)
    }

    /// The chain that the store is for.
    pub fn binding(&self) -> Binding {
        let ChainSettings { pool, reading, development, .. } = &self.chain;
        Binding::new(pool.chain_id, reading.registries.identity, *development)
    }

    /// The same, but with the values of another that count without a restart.
    fn read_again_as(mut self, other: &Self) -> Self {
        // Certificates. That a listener has one counts from the start.
        for (own, other) in
            [(&mut self.listen.tls, &other.listen.tls), (&mut self.authz.tls, &other.authz.tls)]
        {
            if own.is_some() && other.is_some() {
                own.clone_from(other);
            }
        }
        let GatewaySettings { strict_tenants, allow_empty, allow_link_local, .. } = other.gateway;
        self.gateway = GatewaySettings { strict_tenants, allow_empty, allow_link_local, ..self.gateway };
        // It counts where there is no store.
        if let (Embedded { create, .. }, Embedded { create: other, .. }) = (&mut self.store, &other.store) {
            *create = *other;
        }
        self.assertion.clone_from(&other.assertion);
        self.log.rules.clone_from(&other.log.rules);
        self.tenants_rules.clone_from(&other.tenants_rules);
        self
    }

    /// True for a key whose value counts from the start of the process to its end. Tenants, certificates and
    /// which lines are logged are read again, and a store is made at a start alone.
    pub fn counts_from_start(key: &str) -> bool {
        let is_read_again = matches!(
            key,
            "gateway.allow_empty"
                | "gateway.allow_link_local"
                | "gateway.strict_tenants"
                | "log.level"
                | "log.access"
                | "store.embedded.create"
        );
        let is_of_tenant = notes::is_of_tenant(key) || key.starts_with("tenants_rules[");
        let is_certificate =
            ["listen.tls.", "authz.tls.cert", "authz.tls.key"].iter().any(|tls| key.starts_with(tls));
        !is_of_tenant && !is_certificate && !key.starts_with("assertion.") && !is_read_again
    }

    /// True if a key is good only while the account that signed for it may act for the agent: by default where registries
    /// have wallets.
    pub fn keys_end_with_signer(&self) -> bool {
        self.keys.end_with_signer.unwrap_or_else(|| self.chain.reading.registries.has_wallets())
    }

    /// The tenants of the configuration file.
    pub fn main_tenants(&self) -> &[Arc<Tenant>] {
        self.tenants.get(..self.tenants.len().saturating_sub(self.tenant_files.len())).unwrap_or_default()
    }

    /// Each file of `tenants.d` with its tenant.
    pub fn of_folder(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Tenant>)> {
        let tenants = self.tenants.get(self.main_tenants().len()..).unwrap_or_default();
        self.tenant_files.iter().zip(tenants)
    }

    /// Reads the file: everything but tenants, the listeners though other sections are wrong, and the tenants.
    fn read(reader: &mut Reader) -> (Option<Self>, Option<Listen>, Vec<Claimant>) {
        let mut sections = Sections::read(reader);
        if let (Some(chain), Some(signature)) = (&sections.chain, &sections.signature) {
            signature.check_chain(reader, chain);
        }
        if let Some(tiers) = &mut sections.tiers {
            tiers.check(reader, sections.chain.as_ref().map(|chain| &chain.reading));
        }
        if let (Some(signature), Some(keys)) = (&sections.signature, &sections.keys) {
            signature.check_service(reader, keys);
        }
        if let (Some(authz), Some(listen)) = (&sections.authz, &sections.listen) {
            authz.check(reader, listen);
        }
        let listen = sections.listen.clone();
        let allow_link_local = sections.gateway.as_ref().is_none_or(|gateway| gateway.allow_link_local);
        let lacks = Lacks {
            signer: sections.assertion.as_ref().is_some_and(|assertion| assertion.issuer.is_none()),
            kept_nonces: sections.signature.as_ref().is_some_and(SignatureSettings::forgets_early),
            bots: sections.web_bot_auth.as_ref().is_some_and(|domains| *domains == BotDomains::default()),
        };
        let tenants = tenants::read(reader, listen.as_ref(), allow_link_local, lacks);
        (sections.whole().filter(|_| tenants.is_some()), listen, tenants.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
