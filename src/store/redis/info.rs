//! A server's `INFO`: its role, its settings, and which process it is.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;

use crate::store::redis::error::RedisError;

/// The fields of `INFO` by name.
pub(super) struct Info(HashMap<String, String>);

/// A process of Redis, and how many keys it has evicted.
pub(super) struct Process {
    run_id: String,
    evicted_keys: String,
}

impl Process {
    /// Succeeds for the process that this one was when a session began.
    pub(super) fn check_same(&self, before: &Self) -> Result<(), RedisError> {
        match (self.run_id == before.run_id, self.evicted_keys == before.evicted_keys) {
            (true, true) => Ok(()),
            (true, false) => Err(RedisError::Unusable("it has evicted keys")),
            (false, _) => Err(RedisError::Unusable("another server answers at its address")),
        }
    }
}

impl Info {
    /// Asks a server.
    pub(super) async fn of(connection: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        let text: String = redis::cmd("INFO").query_async(connection).await?;
        Ok(Self::read(&text))
    }

    pub(super) fn read(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Self(lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    /// A field's value; empty when it is absent.
    pub(super) fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Succeeds for a master that has loaded its data and evicts nothing. What is evicted may be a used nonce, a key or
    /// a limit.
    pub(super) fn check_usable(&self) -> Result<(), RedisError> {
        if ["run_id", "evicted_keys", "master_replid"].iter().any(|name| self.value(name).is_empty()) {
            return Err(RedisError::Unusable("its INFO lacks run_id, evicted_keys or master_replid"));
        }
        Err(RedisError::Unusable(
            match (self.value("role"), self.value("loading"), self.value("maxmemory_policy")) {
                ("master", "0", "noeviction") => return Ok(()),
                ("master", "0", _) => {
                    "its maxmemory-policy is not noeviction: it may forget keys, nonces and limits; set noeviction"
                }
                ("master", _, _) => "it is loading its data",
                (_, _, _) => "it is a replica",
            },
        ))
    }

    /// The process that it is.
    pub(super) fn process(&self) -> Process {
        let field = |name| self.value(name).to_owned();
        Process { run_id: field("run_id"), evicted_keys: field("evicted_keys") }
    }
}

#[cfg(test)]
mod tests {
    use super::Info;

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
        Info::read(MASTER).check_usable().unwrap();
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
            assert!(Info::read(&MASTER.replace(field, instead)).check_usable().is_err(), "{instead}");
        }
    }

    #[test]
    fn another_process_and_one_that_has_evicted_keys_are_not_the_same() {
        let before = Info::read(MASTER).process();
        before.check_same(&before).unwrap();
        for (field, instead) in [("run_id:a", "run_id:b"), ("evicted_keys:3", "evicted_keys:4")] {
            assert!(Info::read(&MASTER.replace(field, instead)).process().check_same(&before).is_err());
        }
    }
}
