//! What a server says of itself, and what of that an operator should hear at the start.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;

use crate::store::redis::trouble::Trouble;

/// What `INFO` says.
pub(super) struct Info(HashMap<String, String>);

/// Asks a server about itself.
pub(super) async fn info(connection: &mut MultiplexedConnection) -> Result<Info, Trouble> {
    let text: String =
        redis::cmd("INFO").query_async(connection).await.map_err(|error| Trouble::of(&error))?;
    Ok(Info::read(&text))
}

impl Info {
    fn read(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Self(lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Which process this is, and in which of its lives as a master: both change where writes may have been lost.
    ///
    /// Only a master that has its data has one.
    pub(super) fn identity(&self) -> Result<String, Trouble> {
        if self.value("role") != "master" {
            return Err(Trouble::Refused("it is a replica".to_owned()));
        }
        if self.value("loading") == "1" {
            return Err(Trouble::Refused("it is reading its data".to_owned()));
        }
        let (process, life) = (self.value("run_id"), self.value("master_replid"));
        if process.is_empty() || life.is_empty() {
            return Err(Trouble::Unreadable);
        }
        Ok(format!("{process}:{life}"))
    }

    /// What an operator should know. `settings` is what the server lets be seen of its configuration.
    fn complaints(&self, settings: &HashMap<String, String>, wait_replicas: u32) -> Vec<String> {
        let setting = |name: &str| settings.get(name).map(String::as_str);
        let mut complaints = Vec::new();
        let policy = setting("maxmemory-policy").unwrap_or_else(|| self.value("maxmemory_policy"));
        if !policy.is_empty() && policy != "noeviction" {
            complaints.push(format!(
                "its maxmemory-policy is {policy}: it may forget keys, nonces and limits when memory is short; set \
                 noeviction"
            ));
        }
        if self.value("aof_enabled") == "0" {
            complaints.push(
                "appendonly is off: a restart undoes everything since the last snapshot, and a revoked key may be \
                 current again; turn it on"
                    .to_owned(),
            );
        }
        let replicas = self.value("connected_slaves").parse().unwrap_or(0);
        if wait_replicas > replicas {
            complaints.push(format!(
                "store.wait_replicas is {wait_replicas} and it has {replicas}: no key is made or replaced and no \
                 signature accepted until it has as many; revocations take effect and are answered with 500"
            ));
        }
        if replicas > 0 && wait_replicas == 0 {
            complaints.push(
                "it has replicas and store.wait_replicas is 0: a failover may bring back a key that was just revoked"
                    .to_owned(),
            );
        }
        if replicas > 0 && setting("min-replicas-to-write") == Some("0") {
            complaints.push(
                "it has replicas and min-replicas-to-write is 0: cut off from them it goes on as a master beside the \
                 one that is promoted"
                    .to_owned(),
            );
        }
        complaints
    }
}

/// Logs what an operator should know of a server.
pub(super) async fn complain(connection: &mut MultiplexedConnection, info: &Info, wait_replicas: u32) {
    let mut settings = HashMap::new();
    for name in ["maxmemory-policy", "min-replicas-to-write"] {
        let mut command = redis::cmd("CONFIG");
        // Managed servers do not let it be seen; then nothing is said.
        let seen: Result<HashMap<String, String>, _> =
            command.arg("GET").arg(name).query_async(connection).await;
        settings.extend(seen.unwrap_or_default());
    }
    for complaint in info.complaints(&settings, wait_replicas) {
        tracing::warn!("Redis: {complaint}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::Info;

    const MASTER: &str = "# Server\r\nrun_id:a\r\n# Persistence\r\nloading:0\r\naof_enabled:0\r\n# Replication\r\n\
                          role:master\r\nconnected_slaves:1\r\nmaster_replid:b\r\n";

    fn complaints(info: &str, settings: &[(&str, &str)], wait_replicas: u32) -> usize {
        let settings: HashMap<String, String> =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Info::read(info).complaints(&settings, wait_replicas).len()
    }

    #[test]
    fn a_master_is_known_by_its_process_and_its_life() {
        assert_eq!(Info::read(MASTER).identity().unwrap(), "a:b");
        for (what, instead) in [
            ("role:master", "role:slave"),
            ("loading:0", "loading:1"),
            ("run_id:a", ""),
            ("master_replid:b", ""),
        ] {
            assert!(Info::read(&MASTER.replace(what, instead)).identity().is_err(), "{instead}");
        }
    }

    #[test]
    fn what_loses_data_is_complained_of() {
        let sound = [("maxmemory-policy", "noeviction"), ("min-replicas-to-write", "1")];
        let appending = MASTER.replace("aof_enabled:0", "aof_enabled:1");
        assert_eq!(complaints(&appending, &sound, 1), 0);
        assert_eq!(complaints(&appending, &sound, 2), 1);
        assert_eq!(complaints(&appending, &sound, 0), 1, "nobody waits for its replica");
        assert_eq!(complaints(&appending, &[("maxmemory-policy", "allkeys-lru")], 1), 1);
        assert_eq!(complaints(&appending, &[("min-replicas-to-write", "0")], 1), 1);
        assert_eq!(complaints(MASTER, &sound, 1), 1, "snapshots alone are not enough");
        assert_eq!(complaints(MASTER, &[], 1), 1, "nor where settings can't be seen");
        let alone = appending.replace("connected_slaves:1", "connected_slaves:0");
        assert_eq!(complaints(&alone, &[("min-replicas-to-write", "0")], 0), 0);
    }
}
