//! What a server says of itself, and which process it is.

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
    pub(super) fn read(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Self(lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    pub(super) fn value(&self, name: &str) -> &str {
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
}

#[cfg(test)]
mod tests {
    use super::Info;

    const MASTER: &str = "# Server\r\nrun_id:a\r\n# Persistence\r\nloading:0\r\naof_enabled:0\r\n# Replication\r\n\
                          role:master\r\nconnected_slaves:1\r\nmaster_replid:b\r\n";

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
}
