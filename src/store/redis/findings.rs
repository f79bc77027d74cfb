//! What of a server's state and settings an operator should hear, and of which servers that has been said already.
//!
//! Must not know what the server is connected to for.

use std::collections::HashMap;
use std::fmt;
use std::mem::discriminant;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;

use crate::domain::redis_url::RedisHost;
use crate::store::redis::house::Info;
use crate::store::redis::options::Shared;

/// The settings that are asked for.
const SETTINGS: [&str; 4] = ["maxmemory-policy", "min-replicas-to-write", "appendfsync", "save"];

/// So many servers are known at most: nodes of a cluster come and go. Beyond that everything may be said once more.
const SERVERS_MAX: usize = 1_024;

/// Something that loses data or refuses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// It forgets what is in use when memory is short, by this policy.
    Evicts(String),
    /// It writes nothing to its disk.
    KeepsNothing,
    /// It writes its disk now and then.
    SnapshotsAlone,
    /// It is a second, or two, behind with its disk.
    SyncsEverySecond,
    /// It leaves to its host when something is on the disk.
    NeverSyncs,
    /// It has fewer replicas than must acknowledge a write.
    TooFewReplicas {
        /// How many must.
        wanted: u32,
        /// How many it has.
        has: u32,
    },
    /// It has replicas, and nobody waits for them.
    NobodyWaits,
    /// It has replicas, and goes on as a master without them.
    GoesOnAlone,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicts(policy) => write!(
                out,
                "its maxmemory-policy is {policy}: it may forget keys, nonces and limits when memory is short; set \
                 noeviction"
            ),
            Self::KeepsNothing => out.write_str(
                "appendonly is off and save is empty: a restart loses every key and limit; turn appendonly on",
            ),
            Self::SnapshotsAlone => out.write_str(
                "appendonly is off: a restart undoes everything since the last snapshot, and a revoked key may be \
                 current again; turn it on",
            ),
            Self::SyncsEverySecond => out.write_str(
                "appendfsync is everysec: when its machine fails, changes of keys of the last second or two are undone, \
                 and a revoked key may be current again; set always",
            ),
            Self::NeverSyncs => out.write_str(
                "appendfsync is no: when its machine fails, changes of keys of the last half minute or more are undone, \
                 and a revoked key may be current again; set always",
            ),
            Self::TooFewReplicas { wanted, has } => write!(
                out,
                "store.wait_replicas is {wanted} and it has {has}: no key is made or replaced and no signature accepted \
                 until it has as many; revocations take effect and are answered with 500"
            ),
            Self::NobodyWaits => out.write_str(
                "it has replicas and store.wait_replicas is 0: a failover may bring back a key that was just revoked",
            ),
            Self::GoesOnAlone => out.write_str(
                "it has replicas and min-replicas-to-write is 0: cut off from them it goes on as a master beside the \
                 one that is promoted",
            ),
        }
    }
}

/// Logs what an operator should know of a server, and has not been told.
pub(super) async fn complain(
    connection: &mut MultiplexedConnection,
    server: &RedisHost,
    info: &Info,
    shared: &Shared,
) {
    let mut settings = HashMap::new();
    for name in SETTINGS {
        let mut command = redis::cmd("CONFIG");
        // Managed servers do not let it be seen; then nothing is said.
        let seen: Result<HashMap<String, String>, _> =
            command.arg("GET").arg(name).query_async(connection).await;
        settings.extend(seen.unwrap_or_default());
    }
    let found = findings(info, &settings, shared.options.wait_replicas);
    for finding in shared.told.news(server, found) {
        tracing::warn!(%server, "Redis: {finding}");
    }
}

/// What an operator should know. `settings` is what the server lets be seen of its configuration.
fn findings(info: &Info, settings: &HashMap<String, String>, wait_replicas: u32) -> Vec<Finding> {
    let setting = |name: &str| settings.get(name).map(String::as_str);
    let mut found = Vec::new();
    let policy = setting("maxmemory-policy").unwrap_or_else(|| info.value("maxmemory_policy"));
    if !policy.is_empty() && policy != "noeviction" {
        found.push(Finding::Evicts(policy.to_owned()));
    }
    match (info.value("aof_enabled"), setting("save"), setting("appendfsync")) {
        ("0", Some(""), _) => found.push(Finding::KeepsNothing),
        ("0", _, _) => found.push(Finding::SnapshotsAlone),
        (_, _, Some("everysec")) => found.push(Finding::SyncsEverySecond),
        (_, _, Some("no")) => found.push(Finding::NeverSyncs),
        (_, _, _) => {}
    }
    let replicas = info.value("connected_slaves").parse().unwrap_or(0);
    if wait_replicas > replicas {
        found.push(Finding::TooFewReplicas { wanted: wait_replicas, has: replicas });
    }
    if replicas > 0 && wait_replicas == 0 {
        found.push(Finding::NobodyWaits);
    }
    if replicas > 0 && setting("min-replicas-to-write") == Some("0") {
        found.push(Finding::GoesOnAlone);
    }
    found
}

/// What has been said of which server.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<HashMap<RedisHost, Vec<Finding>>>);

impl Told {
    /// Takes in what is found at a server now, and says what of it is new: connections come and go, and what was said is
    /// not said again until it had been set right in between.
    fn news(&self, server: &RedisHost, found: Vec<Finding>) -> Vec<Finding> {
        let mut told = self.0.lock();
        if told.len() >= SERVERS_MAX && !told.contains_key(server) {
            told.clear();
        }
        let before = told.insert(server.clone(), found.clone()).unwrap_or_default();
        let is_new =
            |finding: &Finding| !before.iter().any(|other| discriminant(other) == discriminant(finding));
        found.into_iter().filter(is_new).collect()
    }

    /// What was found at a server the last time.
    #[cfg(test)]
    pub(super) fn of(&self, server: &RedisHost) -> Option<Vec<Finding>> {
        self.0.lock().get(server).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{Finding, SERVERS_MAX, Told, findings};
    use crate::domain::redis_url::RedisHost;
    use crate::store::redis::house::Info;

    const MASTER: &str = "role:master\r\naof_enabled:0\r\nconnected_slaves:1\r\n";

    fn found(info: &str, settings: &[(&str, &str)], wait_replicas: u32) -> Vec<Finding> {
        let settings: HashMap<String, String> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        findings(&Info::read(info), &settings, wait_replicas)
    }

    fn host(port: u16) -> RedisHost {
        RedisHost { host: "a".to_owned(), port }
    }

    #[test]
    fn what_loses_data_is_found() {
        let sound =
            [("maxmemory-policy", "noeviction"), ("min-replicas-to-write", "1"), ("appendfsync", "always")];
        let appending = MASTER.replace("aof_enabled:0", "aof_enabled:1");
        assert_eq!(found(&appending, &sound, 1), []);
        assert_eq!(found(&appending, &sound, 2), [Finding::TooFewReplicas { wanted: 2, has: 1 }]);
        assert_eq!(found(&appending, &sound, 0), [Finding::NobodyWaits]);
        let evicts = [Finding::Evicts("allkeys-lru".to_owned())];
        assert_eq!(found(&appending, &[("maxmemory-policy", "allkeys-lru")], 1), evicts);
        assert_eq!(found(&(appending.clone() + "maxmemory_policy:allkeys-lru\r\n"), &[], 1), evicts);
        assert_eq!(found(&appending, &[("min-replicas-to-write", "0")], 1), [Finding::GoesOnAlone]);
        let alone = appending.replace("connected_slaves:1", "connected_slaves:0");
        assert_eq!(found(&alone, &[("min-replicas-to-write", "0")], 0), []);
    }

    #[test]
    fn what_a_restart_loses_is_found_as_far_as_the_server_lets_its_settings_be_seen() {
        let appending = MASTER.replace("aof_enabled:0", "aof_enabled:1");
        for (info, settings, expected) in [
            (MASTER, &[][..], &[Finding::SnapshotsAlone][..]),
            (MASTER, &[("save", "3600 1"), ("appendfsync", "everysec")], &[Finding::SnapshotsAlone]),
            (MASTER, &[("save", ""), ("appendfsync", "always")], &[Finding::KeepsNothing]),
            (&appending, &[], &[]),
            (&appending, &[("save", ""), ("appendfsync", "always")], &[]),
            (&appending, &[("appendfsync", "everysec")], &[Finding::SyncsEverySecond]),
            (&appending, &[("appendfsync", "no")], &[Finding::NeverSyncs]),
        ] {
            assert_eq!(found(info, settings, 1), expected, "{info} {settings:?}");
        }
    }

    #[test]
    fn each_finding_is_new_once_for_each_server_until_it_was_set_right() {
        let told = Told::default();
        let both = || vec![Finding::SnapshotsAlone, Finding::NobodyWaits];
        assert_eq!(told.news(&host(1), both()), both());
        assert_eq!(told.news(&host(1), both()), []);
        assert_eq!(told.news(&host(2), both()), both(), "another server");
        assert_eq!(told.news(&host(1), vec![Finding::NobodyWaits]), []);
        assert_eq!(told.news(&host(1), both()), [Finding::SnapshotsAlone], "it has come back");
        let few = |has| vec![Finding::TooFewReplicas { wanted: 2, has }];
        assert_eq!(told.news(&host(3), few(0)), few(0));
        assert_eq!(told.news(&host(3), few(1)), [], "the same in other words");
    }

    #[test]
    fn however_many_servers_come_few_are_remembered() {
        let told = Told::default();
        for port in 0..=u16::MAX {
            assert_eq!(told.news(&host(port), vec![Finding::KeepsNothing]), [Finding::KeepsNothing]);
        }
        assert!(told.0.lock().len() <= SERVERS_MAX);
    }
}
