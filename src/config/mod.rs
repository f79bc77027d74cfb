//! The configuration: one TOML file, every value of which the environment may override (`TIERGATE__SECTION__KEY`), and
//! tenants, there and in files of their own.
//!
//! What comes out is checked: whoever holds [`Settings`] need not look again. Everything that is wrong is reported at
//! once. Sections state their keys, defaults and bounds; `conf/tiergate.toml` shows them
//! to operators. Must not know what the settings are used for.

/// Keys, each with its prose in the lines above it: what `conf/tiergate.toml` shows for it. Of several keys that stand in one line
/// the first has that of all. `Example: ` is what the file shows for a key without a default.
macro_rules! keys {
    ($reader:ident: $($(#[doc = $about:literal])* $key:ident $(: $type:ty)? = $read:expr;)+) => {
        $(
            $reader.about(concat!($($about, "\n"),*));
            let $key $(: $type)? = $read;
        )+
    };
}

/// A struct whose fields are read one after the other, as [`keys`]: every one of them, before one that is wrong gives up the
/// whole. A field may use those before it, and checks of several come last.
macro_rules! read_all {
    ($reader:ident: $name:ident { $($(#[doc = $about:literal])* $field:ident: $read:expr),+ $(,)? } $(then $checks:block)?) => {{
        keys! { $reader: $($(#[doc = $about])* $field = $read;)+ }
        $($checks)?
        match ($($field,)+) {
            ($(Some($field),)+) => Some($name { $($field),+ }),
            _ => None,
        }
    }};
}

/// A section with its settings, each with its type and how it is read, all as with [`read_all`].
macro_rules! settings {
    (
        $(#[$doc:meta])+
        $name:ident($reader:ident) {
            $($(#[doc = $about:literal])+ $field:ident: $type:ty = $read:expr,)+
        }
        $(then $checks:block)?
    ) => {
        $(#[$doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $about])+ pub $field: $type,)+
        }

        impl $name {
            pub(super) fn read($reader: &mut $crate::config::reader::Reader) -> Option<Self> {
                read_all!($reader: Self {
                    $($(#[doc = $about])+ $field: { let read: Option<$type> = $read; read }),+
                } $(then $checks)?)
            }
        }
    };
}

pub mod chain;
pub mod gateway;
pub mod listen;
pub mod log;
pub mod owners;
pub mod problem;
pub mod store;
pub mod tenants;
pub mod tiers;

mod load;
mod notes;
mod reader;
mod schema;
mod tier_sources;
mod tree;
mod unknown;
mod written;

use std::{collections::HashMap, path::Path, sync::Arc};

use crate::addresses::AddressRules;
use crate::config::chain::ChainSettings;
use crate::config::gateway::{GatewaySettings, Issuer, issuer};
use crate::config::listen::{AuthzSettings, Listen, ShutdownSettings};
pub(crate) use crate::config::load::environment;
pub use crate::config::load::{ConfigReport, ConfigSource, FileProbe, RefusedFile, no_probe};
use crate::config::log::{LogSettings, TraceSettings};
pub use crate::config::notes::{Content, DEFAULT, NamedFile, VALUES_SHOWN_MAX, Value};
use crate::config::owners::{KeySettings, SignatureSettings};
use crate::config::problem::Location;
pub use crate::config::schema::schema;
use crate::config::tenants::{context::Context, rules::Rules, tenant::Claimant};
use crate::config::{
    notes::Notes, reader::Reader, store::StoreSettings, tiers::TierSettings, written::unless_zero,
};
use crate::domain::{
    Binding, BotDomains, ConsoleSettings, HostPattern, KeyPair, LogRules, McpRules, Quota, RpcUrl, Tenant,
};

/// Makes a struct of sections and keys, each with its type; all are read, as [`keys`], before any that is wrong gives up the whole.
macro_rules! sections {
    (
        $(#[$about:meta])+
        $name:ident($parts:ident, $reader:ident, is_live: $is_live:literal) {
            $($(#[doc = $prose:literal])* $section:ident: $type:ty = $read:expr,)+
        }
        $(and { $($(#[$other_doc:meta])+ $other:ident: $other_type:ty,)+ })?
    ) => {
        $(#[$about])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $prose])* #[doc = concat!("(`", stringify!($section), "`)")] pub $section: $type,)+
            $($($(#[$other_doc])+ pub $other: $other_type,)+)?
        }

        /// The sections and keys of them that could be read.
        struct $parts {
            $($section: Option<$type>,)+
        }

        impl $parts {
            fn read($reader: &mut Reader) -> Self {
                $reader.is_live = $is_live;
                keys! { $reader: $($(#[doc = $prose])* $section = $read;)+ }
                Self { $($section),+ }
            }

            fn whole(self) -> Option<$name> {
                Some($name {
                    $($section: self.$section?,)+
                    $($($other: Default::default(),)+)?
                })
            }
        }

        impl $name {
            fn parts(&self) -> $parts {
                $parts { $($section: Some(self.$section.clone()),)+ }
            }

            /// The sections that are others there.
            pub fn sections_that_differ(&self, other: &Self) -> Vec<&'static str> {
                let sections = [$((self.$section != other.$section).then_some(stringify!($section))),+];
                sections.into_iter().flatten().collect()
            }
        }
    };
}

/// The whole configuration, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Counts from the start of the process to its end.
    pub fixed: Fixed,
    /// Is read again while it runs.
    pub live: Live,
}

sections! {
    /// Settings that count from the start of the process to its end: a restart is needed where a file has others.
    Fixed(FixedParts, reader, is_live: false) {
        listen: Listen = Listen::read(reader),
        chain: ChainSettings = ChainSettings::read(reader),
        tiers: TierSettings = TierSettings::read(reader),
        signature: SignatureSettings = SignatureSettings::read(reader),
        keys: KeySettings = KeySettings::read(reader),
        store: StoreSettings = StoreSettings::read(reader),
        /// How many refused credentials one client IP may present in any 60 seconds before it is limited, up to 1000000; 0 = off.
        /// It may ask GET /keys/status as often.
        abuse: Option<Quota> = reader
            .integer("abuse.failures_per_minute", 300, &(0..=1_000_000))
            .map(|failures| unless_zero(failures).map(Quota::per_minute)),
        web_bot_auth: BotDomains = listen::bots(reader),
        authz: AuthzSettings = AuthzSettings::read(reader),
        console: ConsoleSettings = owners::console(reader),
        gateway: GatewaySettings = GatewaySettings::read(reader),
        mcp: McpRules = gateway::mcp(reader),
        shutdown: ShutdownSettings = ShutdownSettings::read(reader),
        traces: TraceSettings = TraceSettings::read(reader),
        log: LogSettings = LogSettings::read(reader),
    }
}

sections! {
    /// Settings that are read again while the process runs, and then count at once.
    Live(LiveParts, reader, is_live: true) {
        /// The certificate with its chain, leaf first, and its key.
        /// Example: "/etc/tiergate/tls.crt"
        /// Example: "/etc/tiergate/tls.key"
        tls: Option<KeyPair> = reader.key_pair("listen.tls.cert", "listen.tls.key"),
        /// The listener's certificate with its chain, and its key, which are read again when they change.
        /// Example: "/etc/tiergate/authz.crt"
        /// Example: "/etc/tiergate/authz.key"
        authz_tls: Option<KeyPair> = reader.key_pair("authz.tls.cert", "authz.tls.key"),
        /// true: an empty store is made where there is none: set it to true for a first start, and remove it then. Without it a start
        /// without the store's file is refused: a volume that is not mounted looks like a first start.
        create_store: bool = reader.boolean("store.embedded.create", false),
        /// true: a start is refused while a tenant can't be served: its file is wrong, or its certificates are, or another new file
        /// claims its host. Without it the start goes on without that tenant, and says so: its hosts get 404. Set it where a
        /// wildcard of one tenant lies above hosts of others: it would take those of a file that can't be read.
        strict_tenants: bool = reader.boolean("gateway.strict_tenants", false),
        /// true: the gateway may be without tenants. Else a start is refused that finds none, or a folder tenants.d without one,
        /// and so is a reload that finds none there, or none at all, where there were some: a volume that is not mounted looks the same.
        allow_empty: bool = reader.boolean("gateway.allow_empty", false),
        /// true: upstreams may be link-local addresses (169.254.0.0/16, fe80::/10), or others where clouds hand out credentials
        /// (fd00:ec2::/32, fd20:ce::254, 100.100.100.200, 168.63.129.16). Names that lead there get no requests without it.
        allow_link_local: bool = reader.boolean("gateway.allow_link_local", false),
        /// The claim iss: a URL, or a name of up to 256 ASCII characters. Upstreams compare it.
        /// Example: "https://gate.example"
        /// A PEM file with private keys for P-256 in PKCS#8 or SEC1, up to 16 KiB. The first signs; the public parts of all are at
        /// /.well-known/jwks.json. To rotate: add the new key as the second, wait 10 minutes, put it first, wait 10 more, take the old
        /// one out.
        /// Example: "/etc/tiergate/assertion.pem"
        issuer: Option<Issuer> = issuer(reader),
        log: LogRules = log::rules(reader),
        tenants_rules: Rules = Rules::read(reader),
    } and {
        /// The tenants of the gateway: those of the file, then those of `tenants.d` in the order of its files' names.
        /// No two share an id or a host.
        tenants: Vec<Arc<Tenant>>,
        /// The files that the last of them stand in, as problems name them.
        tenant_files: Vec<Arc<str>>,
        /// Hosts of tenants that can't be served. They are nobody's: no wildcard of another tenant takes them.
        unserved_hosts: Vec<HostPattern>,
    }
}

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// Its settings.
    pub settings: Settings,
    /// The same as it was written, for people, in the order of the sections; as many values as were wanted.
    pub values: Vec<Value>,
    /// Files that are not used as they are, in the order of their names, the configuration file first.
    pub refused: Vec<RefusedFile>,
}

impl Settings {
    /// Reads the section of the listeners alone, whatever is wrong elsewhere, even where the file is no TOML: a running service
    /// keeps its former configuration, and somebody asks whether it answers. Nothing when a part of it can't be read.
    pub fn load_listen(path: &Path, environment: impl Iterator<Item = (String, String)>) -> Option<Listen> {
        let file = tree::name_of(path);
        let (table, _) = tree::recover(&file, &tree::read_file(path).ok()?);
        let (location, notes) = (Location::of_file(file, None), Notes::default());
        Listen::read(&mut Reader::new(location, table, environment, notes))
    }

    /// The service's name in the types of changes of keys; `None`: they are signed as verifications are.
    pub(crate) fn key_service(&self) -> Option<&str> {
        let public_url = self.fixed.keys.public_url.as_ref().map(RpcUrl::base);
        let signature = &self.fixed.signature;
        signature.service_name.as_deref().or(public_url).filter(|_| signature.has_own_types)
    }

    /// True if a key is good only while the account that signed for it may act for the agent: by default where registries
    /// have wallets.
    pub fn keys_end_with_signer(&self) -> bool {
        self.fixed.keys.end_with_signer.unwrap_or_else(|| self.fixed.chain.reading.registries.has_wallets())
    }

    /// Reads the file: everything but tenants, what tenants of other files depend on though other sections are wrong, and its
    /// tenants.
    fn read(reader: &mut Reader) -> (Option<Self>, Context, Vec<Claimant>) {
        let (mut fixed, live) = (FixedParts::read(reader), LiveParts::read(reader));
        if let (Some(chain), Some(signature)) = (&fixed.chain, &fixed.signature) {
            signature.check_chain(reader, chain);
        }
        if let Some(tiers) = &mut fixed.tiers {
            tiers.check(reader, fixed.chain.as_ref().map(|chain| &chain.reading));
        }
        if let (Some(signature), Some(keys)) = (&fixed.signature, &fixed.keys) {
            signature.check_service(reader, keys);
        }
        if let (Some(authz), Some(listen)) = (&fixed.authz, &fixed.listen) {
            authz.check(reader, listen);
        }
        if let Some(StoreSettings::Redis(_)) = &fixed.store {
            reader.forget_values("store.embedded.");
        }
        let context = Context::new(&fixed, &live);
        let tenants = tenants::read(reader, &context);
        let settings = fixed.whole().zip(live.whole()).map(|(fixed, live)| Self { fixed, live });
        (settings.filter(|_| tenants.is_some()), context, tenants.unwrap_or_default())
    }

    /// The parts of other sections that tenants depend on.
    fn context(&self) -> Context {
        Context::new(&self.fixed.parts(), &self.live.parts())
    }
}

impl Fixed {
    /// The addresses that upstreams may have.
    pub(crate) fn addresses(&self, allow_link_local: bool) -> AddressRules {
        AddressRules { listeners: self.listen.all().collect(), allow_link_local, networks: None }
    }

    /// The chain that the store is for.
    pub fn binding(&self) -> Binding {
        let ChainSettings { pool, reading, development, .. } = &self.chain;
        Binding::new(pool.chain_id, reading.registries.identity, *development)
    }
}

impl Settings {
    /// The same while these are in force. The listeners speak TLS as they did at the start: one whose file no longer
    /// says so keeps its pair, and one that speaks none has none. So do tenants where the file has listeners that speak no TLS. The
    /// signer stays with a tenant that stays.
    pub fn over(mut self, at_start: &Fixed, in_force: &Live) -> Self {
        let live = &mut self.live;
        let listeners = [
            (at_start.listen.tls, &mut live.tls, &in_force.tls),
            (at_start.authz.tls, &mut live.authz_tls, &in_force.authz_tls),
        ];
        for (speaks_tls, pair, former) in listeners {
            *pair = pair.take().or_else(|| former.clone()).filter(|_| speaks_tls);
        }
        // A tenant whose file is refused now stays as it was, and so do its assertions.
        if live.issuer.is_none() && live.tenants.iter().any(|tenant| tenant.assertion) {
            live.issuer = in_force.issuer.clone();
        }
        if at_start.listen.tls && !self.fixed.listen.tls {
            // No tenant may have a pair in such a file.
            let pairs: HashMap<_, _> =
                in_force.tenants.iter().map(|tenant| (&tenant.id, &tenant.tls)).collect();
            for tenant in live.tenants.iter_mut().filter(|tenant| tenant.tls.is_none()) {
                if let Some(Some(pair)) = pairs.get(&tenant.id) {
                    Arc::make_mut(tenant).tls = Some(KeyPair::clone(pair));
                }
            }
        }
        self
    }
}

impl Live {
    /// The tenants of the configuration file.
    pub fn main_tenants(&self) -> &[Arc<Tenant>] {
        self.tenants.get(..self.tenants.len().saturating_sub(self.tenant_files.len())).unwrap_or_default()
    }

    /// Each file of `tenants.d` with its tenant.
    pub fn of_folder(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Tenant>)> {
        let tenants = self.tenants.get(self.main_tenants().len()..).unwrap_or_default();
        self.tenant_files.iter().zip(tenants)
    }
}

#[cfg(test)]
mod tests;

pub use listen::Listener;
pub use log::AuditPlace;
pub use problem::{Position, Problem};
