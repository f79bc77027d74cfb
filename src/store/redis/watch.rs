//! Watches a session while it serves: its connections, the server's state, and whether the Sentinels still name it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::store::redis::answers::read;
use crate::store::redis::info::Info;
use crate::store::redis::server::{Address, Server};
use crate::store::redis::session::{Connection, Session};

/// How often each connection is tried, and the server asked about itself over one of them, so that it is not a request that
/// finds out that either is dead.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// How often the Sentinels are asked whether the master is still the master.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// So many answers in a row without a majority are one too many. That there is none happens.
const DOUBTS_MAX: u32 = 3;

impl Server {
    /// Watches until the session ends.
    pub(super) async fn watch(self: &Arc<Self>, session: &Arc<Session>) {
        tokio::join!(self.ask_server(session), self.ask_sentinels(session));
    }

    async fn ask_server(self: &Arc<Self>, session: &Arc<Session>) {
        for beat in 0_usize.. {
            sleep(HEARTBEAT).await;
            let mut asked = JoinSet::new();
            let connections = session.connections.load_full();
            for (number, connection) in connections.iter().enumerate() {
                let (server, session) = (Arc::clone(self), Arc::clone(session));
                let connection = Arc::clone(connection);
                // In turn: a dead connection holds up no more than one look at the server.
                let is_looked_over = beat % connections.len() == number;
                asked.spawn(async move {
                    if is_looked_over {
                        server.look_over(&session, &connection).await;
                    } else {
                        let time_max = server.shared.options.timeout;
                        let _ = server.send(&session, &connection, &redis::cmd("TIME"), time_max).await;
                    }
                });
            }
            // A failure to send is counted where it happens. A silent connection holds up none that answered before.
            while asked.join_next().await.is_some() {}
            // The store's own runtime gets its connection back here, too, if it has lost it.
            if let Err(error) = self.look_at_claim(session, beat).await {
                tracing::debug!(%error, "cannot look at what Redis is for");
            }
        }
    }

    /// Asks the server about itself, and ends the session where it may not be used any more.
    async fn look_over(&self, session: &Arc<Session>, connection: &Arc<Connection>) {
        let (time_max, asked_at) = (self.shared.options.timeout, self.shared.clock.unix_millis());
        if let Ok(Ok(answer)) = self.send(session, connection, &redis::cmd("INFO"), time_max).await {
            let info = read::<String>(&answer).map(|text| Info::read(&text));
            match info.and_then(|info| session.check(&info).map(|()| info)) {
                Ok(info) => {
                    self.note_time(session, &info, asked_at);
                    self.note_replicas(session, &info);
                }
                Err(error) => self.end(session, error.to_string()),
            }
        }
    }

    /// Notes the server's time, which it has told between this moment and now.
    fn note_time(&self, session: &Session, info: &Info, asked_at_millis: u64) {
        if let Ok(theirs) = info.value("server_time_usec").parse::<i64>() {
            let ours = (asked_at_millis + self.shared.clock.unix_millis()).cast_signed() * 500;
            session.clock_offset_micros.store(theirs - ours, Ordering::Relaxed);
        }
    }

    /// Asks the Sentinels again and again whether this is still the master.
    async fn ask_sentinels(&self, session: &Arc<Session>) {
        let Address::Sentinel(sentinels) = &self.address else { return };
        let mut doubts = 0;
        loop {
            match sentinels.master(&self.shared).await {
                Ok(named) if named == session.host => doubts = 0,
                Ok(named) => self.end(session, format!("the Sentinels name another master, {named}")),
                Err(error) => {
                    doubts += 1;
                    if doubts >= DOUBTS_MAX {
                        self.end(session, error.to_string());
                    }
                }
            }
            sleep(ASK_EVERY).await;
        }
    }
}
