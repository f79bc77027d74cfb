//! Settings of a server that lose data or refuse it, for the operator's log.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;

use crate::store::redis::info::{Info, setting};

/// The settings that are asked for.
const SETTINGS: [&str; 3] = ["min-replicas-to-write", "appendfsync", "save"];

/// One that loses data or refuses it, in the words of the log.
pub(super) type Finding = &'static str;

pub(super) const KEEPS_NOTHING: Finding =
    "appendonly is off and save is empty: a restart loses every key and limit; turn appendonly on";
pub(super) const SNAPSHOTS_ALONE: Finding = "appendonly is off: a restart undoes everything since the last snapshot, \
     and a revoked key may be current again; turn it on";
pub(super) const SYNCS_EVERY_SECOND: Finding = "appendfsync is everysec: when its machine fails, changes of keys of the \
     last second or two are undone, and a revoked key may be current again; set always";
pub(super) const NEVER_SYNCS: Finding = "appendfsync is no: when its machine fails, changes of keys of the last half \
     minute or more are undone, and a revoked key may be current again; set always";
pub(super) const TOO_FEW_REPLICAS: Finding = "it has fewer replicas than store.redis.wait_replicas: no key is made or replaced \
     until it has as many; revocations take effect and are answered with 500";
pub(super) const NOBODY_WAITS: Finding = "it has replicas and store.redis.wait_replicas is 0: a failover may bring back a key that was just revoked";
pub(super) const GOES_ON_ALONE: Finding = "it has replicas and min-replicas-to-write is 0: cut off from them it goes on \
     as a master beside the one that is promoted";

/// Asks a server for its settings, and says what an operator should know. Managed servers do not show them all.
pub(super) async fn of(
    connection: &mut MultiplexedConnection,
    info: &Info,
    wait_replicas: u32,
) -> Vec<Finding> {
    let mut settings = HashMap::new();
    for name in SETTINGS {
        settings.extend(setting(connection, name).await);
    }
    findings(info, &settings, wait_replicas)
}

/// `settings` holds what the server shows of its configuration.
fn findings(info: &Info, settings: &HashMap<String, String>, wait_replicas: u32) -> Vec<Finding> {
    let setting = |name: &str| settings.get(name).map(String::as_str);
    let persistence = match (info.value("aof_enabled"), setting("save"), setting("appendfsync")) {
        ("0", Some(""), _) => Some(KEEPS_NOTHING),
        ("0", _, _) => Some(SNAPSHOTS_ALONE),
        (_, _, Some("everysec")) => Some(SYNCS_EVERY_SECOND),
        (_, _, Some("no")) => Some(NEVER_SYNCS),
        (_, _, _) => None,
    };
    let replicas = info.replicas();
    let goes_on_alone = replicas > 0 && setting("min-replicas-to-write") == Some("0");
    let others = [
        (wait_replicas > replicas).then_some(TOO_FEW_REPLICAS),
        (replicas > 0 && wait_replicas == 0).then_some(NOBODY_WAITS),
        goes_on_alone.then_some(GOES_ON_ALONE),
    ];
    persistence.into_iter().chain(others.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{
        Finding, GOES_ON_ALONE, KEEPS_NOTHING, NEVER_SYNCS, NOBODY_WAITS, SNAPSHOTS_ALONE,
        SYNCS_EVERY_SECOND, TOO_FEW_REPLICAS, findings,
    };
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
        assert!(found(&appending, &durable, 1).is_empty());
        assert_eq!(found(&appending, &durable, 2), [TOO_FEW_REPLICAS]);
        assert_eq!(found(&appending, &durable, 0), [NOBODY_WAITS]);
        assert_eq!(found(&appending, &[("min-replicas-to-write", "0")], 1), [GOES_ON_ALONE]);
        let alone = appending.replace("connected_slaves:1", "connected_slaves:0");
        assert!(found(&alone, &[("min-replicas-to-write", "0")], 0).is_empty());
    }

    #[test]
    fn settings_that_lose_data_in_a_restart_are_found_where_the_server_shows_them() {
        let appending = MASTER.replace("aof_enabled:0", "aof_enabled:1");
        for (info, settings, expected) in [
            (MASTER, &[][..], &[SNAPSHOTS_ALONE][..]),
            (MASTER, &[("save", "3600 1"), ("appendfsync", "everysec")], &[SNAPSHOTS_ALONE]),
            (MASTER, &[("save", ""), ("appendfsync", "always")], &[KEEPS_NOTHING]),
            (&appending, &[], &[]),
            (&appending, &[("save", ""), ("appendfsync", "always")], &[]),
            (&appending, &[("appendfsync", "everysec")], &[SYNCS_EVERY_SECOND]),
            (&appending, &[("appendfsync", "no")], &[NEVER_SYNCS]),
        ] {
            assert_eq!(found(info, settings, 1), expected, "{info} {settings:?}");
        }
    }
}
