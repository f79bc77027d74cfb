//! Looking after a connection while it serves: it is tried, and the Sentinels are asked whether it is still the master's.
//!
//! What is found out goes to the link, which decides whether the connection falls.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::store::redis::acknowledged::Acknowledged;
use crate::store::redis::answers::bytes;
use crate::store::redis::dial::{Address, connect_again};
use crate::store::redis::house::{self, Info};
use crate::store::redis::link::{DIAL_TIME_MAX, Line, Link, Route};
use crate::store::redis::sentinels::{ASK_EVERY, Belief, Heard, master};
use crate::store::redis::trouble::Trouble;

/// How often an idle connection is tried, so that it is not a request that finds out that it is dead.
const HEARTBEAT: Duration = Duration::from_secs(1);

impl Link {
    /// Looks after a connection without end, at everything at once: nothing that is silent holds up the rest.
    pub(super) async fn look_after(self: &Arc<Self>, line: &Arc<Line>) {
        let others = (self.keep_acknowledged(line), self.follow_sentinels(line));
        tokio::join!(self.try_connections(line), others.0, others.1);
    }

    async fn try_connections(self: &Arc<Self>, line: &Arc<Line>) {
        loop {
            sleep(HEARTBEAT).await;
            let mut tried = JoinSet::new();
            for connection in line.nearby.all() {
                let (link, line) = (Arc::clone(self), Arc::clone(line));
                tried.spawn(async move {
                    // What is wrong is noted.
                    let _ = link.send(&line, Route::telling(&connection), &redis::cmd("PING")).await;
                });
            }
            self.ask_whether_master(line).await;
            while tried.join_next().await.is_some() {}
        }
    }

    /// A master that is made a replica, and a master again, has lost what its new master lacked, and keeps its
    /// connections. Where nobody writes meanwhile nothing else tells of it.
    async fn ask_whether_master(&self, line: &Arc<Line>) {
        let asked = self.send(line, Route::telling(&line.plain), &house::of_replication()).await;
        let Ok(Ok(said)) = asked else { return };
        let has_stayed = bytes(&said)
            .and_then(|said| std::str::from_utf8(said).ok())
            .is_some_and(|said| Info::read(said).has_stayed_master(&line.promotion));
        if !has_stayed {
            self.fall(line, "it is a replica, or was one in between".to_owned());
        }
    }

    /// Tries the connection that replicas acknowledge on when nobody waits on it, and makes it anew when it was given up.
    async fn keep_acknowledged(&self, line: &Arc<Line>) {
        let Some(acknowledged) = &line.acknowledged else { return };
        loop {
            sleep(HEARTBEAT).await;
            match acknowledged.current() {
                Err(_) => self.acknowledge_again(line, acknowledged).await,
                Ok(waiting) if waiting.is_idle() => {
                    let ping = redis::cmd("PING");
                    let tried = self.send_within(self.wait_time_max(), line, Route::waiting(&waiting), &ping);
                    if let Err(Trouble::Silent(_)) = tried.await {
                        acknowledged.give_up(&waiting, &line.host);
                    }
                }
                // Whoever waits finds out.
                Ok(_) => {}
            }
        }
    }

    async fn acknowledge_again(&self, line: &Arc<Line>, acknowledged: &Acknowledged) {
        let connected = connect_again(&self.shared, &line.host, &line.identity);
        match timeout(DIAL_TIME_MAX, connected).await {
            Ok(Ok(connection)) => acknowledged.set(connection),
            Ok(Err(Trouble::Strange)) => self.fall(line, Trouble::Strange.to_string()),
            // It is tried again. Whether the server is there the other connections find out.
            Ok(Err(trouble)) => tracing::debug!(%trouble, "cannot make a connection for replicas' word"),
            Err(_) => tracing::debug!("a connection for replicas' word takes too long"),
        }
    }

    /// Asks the Sentinels again and again whether it is still the master.
    async fn follow_sentinels(&self, line: &Arc<Line>) {
        let Address::Sentinel { sentinels, service } = &self.address else { return };
        let mut belief = Belief::default();
        loop {
            let asked_micros = self.shared.clock.monotonic_micros();
            let named = master(&self.shared, sentinels, service).await;
            match belief.hear(named, &line.host) {
                Heard::Deposed(why) => self.fall(line, why),
                // What has run out only a majority gives back.
                Heard::Doubtful if self.is_vouched_for(line).is_err() => {}
                Heard::Doubtful | Heard::Confirmed => {
                    line.lease.renew(asked_micros, self.shared.options.timeout);
                }
            }
            sleep(ASK_EVERY).await;
        }
    }
}
