//! What a server says of itself, and which process it is.

use std::collections::HashMap;

use redis::Cmd;
use redis::aio::MultiplexedConnection;

use crate::store::redis::trouble::Trouble;

/// What `INFO` says.
pub(super) struct Info(HashMap<String, String>);

/// The question for its replication alone.
pub(super) fn of_replication() -> Cmd {
    let mut command = redis::cmd("INFO");
    command.arg("REPLICATION");
    command
}

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

    /// The life before this one, which ended when it was promoted, if it ever was.
    pub(super) fn promotion(&self) -> String {
        format!("{}:{}", self.value("master_replid2"), self.value("second_repl_offset"))
    }

    /// Whether it is a master, and has not been promoted since it said `promotion`.
    ///
    /// Its first replica, and the loss of the last one, make it forget that it ever was; they cost nothing.
    pub(super) fn has_stayed_master(&self, promotion: &str) -> bool {
        let forgot = self.value("master_replid2").bytes().all(|digit| digit == b'0');
        self.value("role") == "master" && (forgot || self.promotion() == promotion)
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

    #[test]
    fn a_promotion_since_is_seen_and_a_first_replica_is_none() {
        let info = |role: &str, before: &str, offset: &str| {
            Info::read(&format!("role:{role}\r\nmaster_replid2:{before}\r\nsecond_repl_offset:{offset}\r\n"))
        };
        let (never, promoted) = (info("master", "0000", "-1"), info("master", "a0", "7"));
        assert!(never.has_stayed_master(&never.promotion()));
        assert!(promoted.has_stayed_master(&promoted.promotion()));
        assert!(never.has_stayed_master(&promoted.promotion()), "a first replica");
        assert!(!promoted.has_stayed_master(&never.promotion()));
        assert!(!info("master", "b0", "7").has_stayed_master(&promoted.promotion()));
        assert!(!info("master", "a0", "8").has_stayed_master(&promoted.promotion()));
        assert!(!info("slave", "0000", "-1").has_stayed_master(&never.promotion()));
    }
}
