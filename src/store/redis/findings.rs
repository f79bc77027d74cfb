//! Settings of a server that lose data or refuse it, for the operator's log.

use std::collections::HashMap;
use std::fmt;
use std::mem::discriminant;

use redis::aio::MultiplexedConnection;

use crate::store::redis::info::Info;

/// The settings that are asked for.
const SETTINGS: [&str; 3] = ["min-replicas-to-write", "appendfsync", "save"];

/// Something that loses data or refuses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
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
                "store.wait_replicas is {wanted} and it has {has}: no key is made or replaced until it has as many; \
                 revocations take effect and are answered with 500"
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

/// Asks a server for its settings, and says what an operator should know. Managed servers do not show them all.
pub(super) async fn of(
    connection: &mut MultiplexedConnection,
    info: &Info,
    wait_replicas: u32,
) -> Vec<Finding> {
    let mut settings = HashMap::new();
    for name in SETTINGS {
        let mut command = redis::cmd("CONFIG");
        let seen: Result<HashMap<String, String>, _> =
            command.arg("GET").arg(name).query_async(connection).await;
        settings.extend(seen.unwrap_or_default());
    }
    findings(info, &settings, wait_replicas)
}

/// Remembers what is found now, and returns what was not found the last time: nothing is logged twice unless it had been
/// set right in between.
pub(super) fn news(reported: &mut Vec<Finding>, found: Vec<Finding>) -> Vec<Finding> {
    let is_known =
        |finding: &Finding| reported.iter().any(|other| discriminant(other) == discriminant(finding));
    let news = found.iter().filter(|finding| !is_known(finding)).cloned().collect();
    *reported = found;
    news
}

/// `settings` holds what the server shows of its configuration.
fn findings(info: &Info, settings: &HashMap<String, String>, wait_replicas: u32) -> Vec<Finding> {
    let setting = |name: &str| settings.get(name).map(String::as_str);
    let mut found = Vec::new();
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{Finding, findings, news};
    use crate::store::redis::info::Info;

    const MASTER: &str = "role:master\r\naof_enabled:0\r\nconnected_slaves:1\r\n";

    fn found(info: &str, settings: &[(&str, &str)], wait_replicas: u32) -> Vec<Finding> {
        let settings: HashMap<String, String> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        findings(&Info::read(info), &settings, wait_replicas)
    }

    #[test]
    fn settings_that_lose_data_are_found() {
        let durable = [("min-replicas-to-write", "1"), ("appendfsync", "always")];
        let appending = MASTER.replace("aof_enabled:0", "aof_enabled:1");
        assert_eq!(found(&appending, &durable, 1), []);
        assert_eq!(found(&appending, &durable, 2), [Finding::TooFewReplicas { wanted: 2, has: 1 }]);
        assert_eq!(found(&appending, &durable, 0), [Finding::NobodyWaits]);
        assert_eq!(found(&appending, &[("min-replicas-to-write", "0")], 1), [Finding::GoesOnAlone]);
        let alone = appending.replace("connected_slaves:1", "connected_slaves:0");
        assert_eq!(found(&alone, &[("min-replicas-to-write", "0")], 0), []);
    }

    #[test]
    fn settings_that_lose_data_in_a_restart_are_found_where_the_server_shows_them() {
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
    fn each_finding_is_new_once_until_it_was_set_right() {
        let mut reported = Vec::new();
        let mut news = |found: &[Finding]| news(&mut reported, found.to_vec());
        let both = [Finding::SnapshotsAlone, Finding::NobodyWaits];
        assert_eq!(news(&both), both);
        assert_eq!(news(&both), []);
        assert_eq!(news(&both[1..]), []);
        assert_eq!(news(&both), [Finding::SnapshotsAlone], "it has come back");
        let few = |has| [Finding::TooFewReplicas { wanted: 2, has }];
        assert_eq!(news(&few(0)), few(0));
        assert_eq!(news(&few(1)), [], "the same with another number");
    }
}
