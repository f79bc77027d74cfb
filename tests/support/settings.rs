//! A configuration for the service, changed key by key.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use alloy::primitives::Address;
use tiergate::config::store::StoreSettings;
use tiergate::config::{ConfigSource, Loaded, no_probe};
use tiergate::ports::Clock;
use tiergate::store::{EmbeddedStore, embedded::Options};
use toml::{Table, Value};

use crate::support::chain::Contracts;

/// The configuration file.
#[derive(Debug, Clone)]
pub(crate) struct Settings(Table);

impl Settings {
    /// Defaults, but for what a test of many agents on one machine needs: chain state no older than 250 ms, no limit on
    /// refused credentials, and no delay at the end.
    pub(crate) fn new(node: SocketAddr, contracts: &Contracts) -> Self {
        Self(Table::new())
            .set("chain.rpc_urls", vec![format!("http://{node}")])
            .set("chain.chain_id", contracts.chain_id)
            .set("chain.poll_interval", "250ms")
            // The machine may be busy.
            .set("chain.request_timeout", "5s")
            // Blocks are made here only when a test makes them.
            .set("chain.max_head_age", "0s")
            .at("chain.multicall", contracts.multicall)
            .at("chain.contracts.identity", contracts.identity)
            .at("chain.contracts.stake_vault", contracts.stake_vault)
            .at("chain.contracts.reputation", contracts.reputation)
            .at("chain.contracts.validation", contracts.validation)
            .at("chain.contracts.organization", contracts.organization)
            .set("abuse.failures_per_minute", 0)
            // Nobody balances.
            .set("shutdown.delay", "0s")
    }

    /// Sets a key by its path with dots.
    pub(crate) fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        let (table, key) = self.place(path);
        table.insert(key, value.into());
        self
    }

    /// Sets a key that is not set.
    pub(crate) fn set_default(mut self, path: &str, value: impl Into<Value>) -> Self {
        let (table, key) = self.place(path);
        table.entry(key).or_insert(value.into());
        self
    }

    /// Sets a key to an address.
    pub(crate) fn at(self, path: &str, address: Address) -> Self {
        self.set(path, address.to_checksum(None))
    }

    /// Keeps keys, nonces and limits in Redis. A request waits longer than it does by default: the machine may be busy.
    pub(crate) fn redis(self, url: &str) -> Self {
        self.set("store.kind", "redis").set("store.redis.url", url).set("store.redis.timeout", "5s")
    }

    /// Keeps them in a folder, unless they are in Redis already.
    pub(crate) fn embedded_in(self, folder: &Path) -> Self {
        let store = self.0.get("store").and_then(Value::as_table);
        if store.is_some_and(|store| store.contains_key("redis")) {
            return self;
        }
        let settings = self.set("store.embedded.path", folder.to_str().unwrap());
        settings.set("store.embedded.create", true)
    }

    /// Puts an empty store into the folder that was made long ago: a new one takes no signature for a minute.
    pub(crate) fn with_store_in(self, folder: &Path) -> Self {
        let made = tempfile::tempdir().unwrap();
        let file = made.path().join("tiergate.toml");
        fs::write(&file, self.text()).unwrap();
        let report = ConfigSource::alone(&file).read(0, None, &mut no_probe);
        if let Ok(Loaded { settings: read, .. }) = report.whole()
            && matches!(&read.fixed.store, StoreSettings::Embedded { path, .. } if path == folder)
        {
            let path = made.path().to_owned();
            let options =
                Options { path, binding: read.fixed.binding(), nonce_retention_secs: 0, max_ahead_secs: 0 };
            drop(EmbeddedStore::open(options, Arc::new(LongAgo)).unwrap());
            fs::create_dir(folder).unwrap();
            // A copy: a program that is just started elsewhere may hold the other one's lock.
            fs::copy(made.path().join("tiergate.redb"), folder.join("tiergate.redb")).unwrap();
            return self.set("store.embedded.create", false);
        }
        self
    }

    /// Leaves a key out.
    pub(crate) fn without(mut self, path: &str) -> Self {
        let (table, key) = self.place(path);
        assert!(table.remove(&key).is_some(), "{path} was not there");
        self
    }

    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }

    fn place(&mut self, path: &str) -> (&mut Table, String) {
        let mut table = &mut self.0;
        let mut names = path.split('.').peekable();
        loop {
            let name = names.next().unwrap().to_owned();
            if names.peek().is_none() {
                return (table, name);
            }
            let below = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
            table = below.as_table_mut().unwrap();
        }
    }
}

/// A clock of long ago.
struct LongAgo;

impl Clock for LongAgo {
    fn unix_millis(&self) -> u64 {
        0
    }

    fn monotonic_micros(&self) -> u64 {
        0
    }
}
