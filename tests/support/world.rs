//! A chain, a store, and the service that most cases share. They are started when the first case asks for them.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::redis::{Redis, redis_server};
use crate::support::{chain::Chain, service::Service, settings::Settings};

/// Which chain and store a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The product's own development chain, and the embedded store. A build without that chain has a real node instead.
    Dev,
    /// A real node, and the embedded store.
    Anvil,
    /// The chain of [`Kind::Dev`], and a real Redis.
    Redis,
}

/// For topics about the chain.
pub(crate) const CHAINS: &[Kind] = &[Kind::Dev, Kind::Anvil];

/// For topics about keys, nonces and limits.
pub(crate) const STORES: &[Kind] = &[Kind::Dev, Kind::Redis];

/// For everything else.
pub(crate) const ONCE: &[Kind] = &[Kind::Dev];

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Dev, Self::Anvil, Self::Redis];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Anvil => "anvil",
            Self::Redis => "redis",
        }
    }

    /// Why a world of this kind can't be, if its server is not there.
    pub(crate) fn missing(self) -> Option<String> {
        let missing = match self {
            Self::Redis => redis_server().err(),
            Self::Dev | Self::Anvil => None,
        };
        missing.or_else(|| self.has_a_real_node().then(anvil)?.map_err(without_a_chain).err())
    }

    const fn has_a_real_node(self) -> bool {
        matches!(self, Self::Anvil) || cfg!(not(feature = "dev-chain"))
    }
}

/// Says what needs no node, where a build has no chain of its own.
fn without_a_chain(missing: String) -> String {
    if cfg!(feature = "dev-chain") {
        missing
    } else {
        format!("{missing}; --features dev-chain needs no node")
    }
}

/// A chain, a store and a service.
pub(crate) struct World {
    kind: Kind,
    // Dropped in this order: the service before what it needs.
    service: OnceLock<Service>,
    chain: OnceLock<Chain>,
    redis: OnceLock<Redis>,
}

impl World {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, service: OnceLock::new(), chain: OnceLock::new(), redis: OnceLock::new() }
    }

    /// A world of the same kind, with a chain of its own.
    pub(crate) const fn another(&self) -> Self {
        Self::new(self.kind)
    }

    /// True when the world is of this kind.
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.kind == kind
    }

    pub(crate) fn chain(&self) -> &Chain {
        self.chain.get_or_init(|| match self.kind.has_a_real_node() {
            true => Chain::anvil(&anvil().unwrap()),
            false => Chain::dev(),
        })
    }

    /// The service that cases share.
    pub(crate) fn service(&self) -> &Service {
        self.service.get_or_init(|| Service::start(self.settings()))
    }

    /// The shared service's settings, to be changed for a service of one's own. Each call is for a service
    /// with a store of its own.
    pub(crate) fn settings(&self) -> Settings {
        let settings = Settings::new(self.chain().node, &self.chain().contracts);
        match self.kind {
            Kind::Dev | Kind::Anvil => settings,
            Kind::Redis => settings.redis(&self.redis().database()),
        }
    }

    /// The Redis of a world that has one.
    pub(crate) fn redis(&self) -> &Redis {
        assert_eq!(self.kind, Kind::Redis, "a world without Redis");
        self.redis.get_or_init(|| Redis::start(&[]))
    }
}

/// Where the real node's program is, or why it is not there.
pub(crate) fn anvil() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("TG_ANVIL") {
        let named = PathBuf::from(named);
        return if named.is_file() { Ok(named) } else { Err(format!("{} is not there", named.display())) };
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/node_modules/@foundry-rs");
    let packages = std::fs::read_dir(tools).into_iter().flatten().flatten();
    let mut programs = packages.map(|package| package.path().join("bin/anvil"));
    let installed = programs.find(|program| {
        program.is_file() && program.parent().and_then(Path::parent).is_some_and(is_the_program_itself)
    });
    installed.ok_or_else(|| "anvil is not installed: make test installs it".to_owned())
}

/// The package `anvil` beside it holds a wrapper only.
fn is_the_program_itself(package: &Path) -> bool {
    package.file_name().is_some_and(|name| name.to_string_lossy().starts_with("anvil-linux-"))
}
