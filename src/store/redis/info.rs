//! A server's `INFO`: its role, which process it is, and with its settings what loses data or refuses it.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;

use crate::store::redis::error::RedisError;

/// A replica that has acknowledged nothing for longer does not follow. Those that do acknowledge each second.
const LAG_SECS_MAX: u64 = 5;

/// How many replicas are inspected at.
const REPLICAS_MAX: u32 = 64;

/// The field that says what is evicted.
const POLICY: &str = "maxmemory_policy";

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

/// The fields of `INFO` by name.
pub(super) struct Info(HashMap<String, String>);

impl Info {
    /// Asks a server. Some show in `CONFIG` alone what they evict.
    pub(super) async fn of(connection: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        let text: String = redis::cmd("INFO").query_async(connection).await?;
        Ok(Self::read(&text).completed(connection).await)
    }

    pub(super) async fn completed(mut self, connection: &mut MultiplexedConnection) -> Self {
        if self.value(POLICY).is_empty() {
            let shown = setting(connection, "maxmemory-policy").await;
            self.0.extend(shown.into_values().map(|policy| (POLICY.to_owned(), policy)));
        }
        self
    }

    pub(super) fn read(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Self(lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    /// A field's value; empty when it is absent.
    pub(super) fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// How many replicas follow: those that have acknowledged something within [`LAG_SECS_MAX`], as far as the server shows it.
    pub(super) fn replicas(&self) -> u32 {
        let connected: u32 = self.value("connected_slaves").parse().unwrap_or(0);
        let follows = |number: &u32| {
            let shown = self.value(&format!("slave{number}"));
            let field = |name| shown.split(',').find_map(|field| field.strip_prefix(name));
            let lag = field("lag=").and_then(|lag| lag.parse::<u64>().ok());
            shown.is_empty()
                || (field("state=") == Some("online") && lag.is_none_or(|lag| lag <= LAG_SECS_MAX))
        };
        let count = (0..connected.min(REPLICAS_MAX)).filter(follows).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Succeeds for a master that has loaded its data and evicts nothing, by what it said `before` if it does not say so now. What
    /// is evicted may be a used nonce, a key or a limit.
    pub(super) fn check_usable(&self, before: &Self) -> Result<(), RedisError> {
        let policy = Some(self.value(POLICY)).filter(|policy| !policy.is_empty());
        if ["run_id", "evicted_keys", "master_replid"].iter().any(|name| self.value(name).is_empty()) {
            return Err(RedisError::Unusable("its INFO lacks run_id, evicted_keys or master_replid"));
        }
        Err(RedisError::Unusable(
            match (self.value("role"), self.value("loading"), policy.unwrap_or(before.value(POLICY))) {
                ("master", "0", "noeviction") => return Ok(()),
                ("master", "0", "") => {
                    "its maxmemory-policy can't be read here, in INFO or by CONFIG GET: unless it is noeviction it may forget keys, nonces and limits"
                }
                ("master", "0", _) => {
                    "its maxmemory-policy is not noeviction: it may forget keys, nonces and limits; set noeviction"
                }
                ("master", _, _) => "it is loading its data",
                (_, _, _) => "it is a replica",
            },
        ))
    }

    /// Succeeds for the process that this one was when a session began, if it has evicted no key since.
    pub(super) fn check_same(&self, before: &Self) -> Result<(), RedisError> {
        let is_same = |name| self.value(name) == before.value(name);
        match (is_same("run_id"), is_same("evicted_keys")) {
            (true, true) => Ok(()),
            (true, false) => Err(RedisError::Unusable("it has evicted keys")),
            (false, _) => Err(RedisError::Unusable("another server answers at its address")),
        }
    }

    /// Asks a server for its settings, and says what an operator should know. Managed servers do not show them all.
    pub(super) async fn findings(
        &self,
        connection: &mut MultiplexedConnection,
        wait_replicas: u32,
    ) -> Vec<Finding> {
        let mut settings = HashMap::new();
        for name in SETTINGS {
            settings.extend(setting(connection, name).await);
        }
        findings(self, &settings, wait_replicas)
    }
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

/// A setting by its name, if the server shows it.
async fn setting(connection: &mut MultiplexedConnection, name: &str) -> HashMap<String, String> {
    redis::cmd("CONFIG").arg("GET").arg(name).query_async(connection).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{
        Finding, GOES_ON_ALONE, Info, KEEPS_NOTHING, NEVER_SYNCS, NOBODY_WAITS, SNAPSHOTS_ALONE,
        SYNCS_EVERY_SECOND, TOO_FEW_REPLICAS, findings,
    };

    impl Info {
        /// Replaces a field's value.
        pub(in crate::store::redis) fn set(&mut self, name: &str, value: &str) {
            self.0.insert(name.to_owned(), value.to_owned());
        }
    }

    const MASTER: &str = "# Server\r\nrun_id:a\r\n# Persistence\r\nloading:0\r\n# Stats\r\nevicted_keys:3\r\n\
                          # Memory\r\nmaxmemory_policy:noeviction\r\n# Replication\r\nrole:master\r\n\
                          master_replid:b\r\n";

    #[test]
    fn only_a_loaded_master_that_evicts_nothing_is_used() {
        let usable = |info: &Info| info.check_usable(info);
        usable(&Info::read(MASTER)).unwrap();
        for (field, instead) in [
            ("role:master", "role:slave"),
            ("role:master", ""),
            ("loading:0", "loading:1"),
            ("maxmemory_policy:noeviction", "maxmemory_policy:volatile-lru"),
            ("maxmemory_policy:noeviction", ""),
            ("run_id:a", ""),
            ("evicted_keys:3", ""),
            ("master_replid:b", ""),
        ] {
            assert!(usable(&Info::read(&MASTER.replace(field, instead))).is_err(), "{instead}");
        }
        let silent = Info::read(&MASTER.replace("maxmemory_policy:noeviction", ""));
        assert!(
            usable(&silent).unwrap_err().to_string().starts_with("its maxmemory-policy can't be read here")
        );
        silent.check_usable(&Info::read(MASTER)).unwrap();
    }

    #[test]
    fn a_replica_that_has_acknowledged_nothing_for_long_or_is_not_online_does_not_follow() {
        let replica = |number, state, lag| {
            format!("slave{number}:ip=127.0.0.1,port=7,state={state},offset=1,lag={lag}\r\n")
        };
        let count = |connected: u32, shown: &[String]| {
            Info::read(&format!("connected_slaves:{connected}\r\n{}", shown.concat())).replicas()
        };
        assert_eq!(count(0, &[]), 0);
        assert_eq!(count(2, &[]), 2, "the server does not show them");
        let shown = [replica(0, "online", 1), replica(1, "online", 6), replica(2, "wait_bgsave", 0)];
        assert_eq!(count(3, &shown), 1);
        assert_eq!(count(3, &[replica(0, "online", 0), replica(1, "online", 5), replica(2, "online", 1)]), 3);
    }

    #[test]
    fn another_process_and_one_that_has_evicted_keys_are_not_the_same() {
        let before = Info::read(MASTER);
        before.check_same(&before).unwrap();
        for (field, instead) in [("run_id:a", "run_id:b"), ("evicted_keys:3", "evicted_keys:4")] {
            assert!(Info::read(&MASTER.replace(field, instead)).check_same(&before).is_err());
        }
    }

    const BARE: &str = "role:master\r\naof_enabled:0\r\nconnected_slaves:1\r\n";

    fn found(info: &str, settings: &[(&str, &str)], wait_replicas: u32) -> Vec<Finding> {
        let settings: HashMap<String, String> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        findings(&Info::read(info), &settings, wait_replicas)
    }

    #[test]
    fn settings_that_lose_data_are_found() {
        let durable = [("min-replicas-to-write", "1"), ("appendfsync", "always")];
        let appending = BARE.replace("aof_enabled:0", "aof_enabled:1");
        assert!(found(&appending, &durable, 1).is_empty());
        assert_eq!(found(&appending, &durable, 2), [TOO_FEW_REPLICAS]);
        assert_eq!(found(&appending, &durable, 0), [NOBODY_WAITS]);
        assert_eq!(found(&appending, &[("min-replicas-to-write", "0")], 1), [GOES_ON_ALONE]);
        let alone = appending.replace("connected_slaves:1", "connected_slaves:0");
        assert!(found(&alone, &[("min-replicas-to-write", "0")], 0).is_empty());
    }

    #[test]
    fn settings_that_lose_data_in_a_restart_are_found_where_the_server_shows_them() {
        let appending = BARE.replace("aof_enabled:0", "aof_enabled:1");
        for (info, settings, expected) in [
            (BARE, &[][..], &[SNAPSHOTS_ALONE][..]),
            (BARE, &[("save", "3600 1"), ("appendfsync", "everysec")], &[SNAPSHOTS_ALONE]),
            (BARE, &[("save", ""), ("appendfsync", "always")], &[KEEPS_NOTHING]),
            (&appending, &[], &[]),
            (&appending, &[("save", ""), ("appendfsync", "always")], &[]),
            (&appending, &[("appendfsync", "everysec")], &[SYNCS_EVERY_SECOND]),
            (&appending, &[("appendfsync", "no")], &[NEVER_SYNCS]),
        ] {
            assert_eq!(found(info, settings, 1), expected, "{info} {settings:?}");
        }
    }
}
