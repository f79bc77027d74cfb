//! One server: its connection, kept up in the background, and the breaker that spares requests a server that is gone.
//!
//! Nothing is sent twice here, but for scripts that the server did not know and so did not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::domain::redis_url::RedisHost;
use crate::store::redis::acknowledged::{Acknowledged, Waiting};
use crate::store::redis::answers::number;
use crate::store::redis::breaker::{Breaker, State};
use crate::store::redis::dial::{Address, dial, renew};
use crate::store::redis::names::Shard;
use crate::store::redis::nearby::{Nearby, nearest};
use crate::store::redis::options::Shared;
use crate::store::redis::scripts::Request;
use crate::store::redis::sentinels::Lease;
use crate::store::redis::trouble::Trouble;
use crate::within::within;

/// How long connecting and looking at a server may take, in all; at least four requests' time.
pub(super) const DIAL_TIME_MAX: Duration = Duration::from_secs(3);

/// A connection that serves.
pub(super) struct Line {
    pub(super) plain: MultiplexedConnection,
    /// For writes that replicas must acknowledge; nothing when none must.
    pub(super) acknowledged: Option<Acknowledged>,
    /// Which process of Redis this is, and in which of its lives as a master.
    pub(super) identity: String,
    /// What it said of its last promotion.
    pub(super) promotion: String,
    /// Where it is.
    pub(super) host: RedisHost,
    /// Further connections to it, for whoever asks from elsewhere.
    pub(super) nearby: Nearby,
    /// Until when it may serve without another look at where the master is.
    pub(super) lease: Lease,
}

/// One of a line's connections.
#[derive(Clone, Copy)]
pub(super) struct Route<'a> {
    connection: &'a MultiplexedConnection,
    /// Whether its silences say something of the server.
    tells: bool,
}

impl<'a> Route<'a> {
    pub(super) const fn telling(connection: &'a MultiplexedConnection) -> Self {
        Self { connection, tells: true }
    }

    /// What is silent here may be a replica.
    pub(super) const fn waiting(waiting: &'a Waiting) -> Self {
        Self { connection: &waiting.connection, tells: false }
    }
}

/// A server that is asked.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) address: Address,
    line: ArcSwapOption<Line>,
    breaker: Mutex<Breaker>,
    /// Whether the breaker has counted silences, so that an answer costs no lock when it has not.
    was_silent: AtomicBool,
    fallen: Notify,
    /// Why there is no connection.
    why: Mutex<String>,
    /// Whose epochs are looked after.
    shards: Mutex<Vec<Shard>>,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, address: Address, shards: Vec<Shard>) -> Arc<Self> {
        shared.metrics.store_breakers.with_label_values(&[State::Open.name()]).inc();
        Arc::new(Self {
            shared,
            address,
            line: ArcSwapOption::empty(),
            breaker: Mutex::new(Breaker::new()),
            was_silent: AtomicBool::new(false),
            fallen: Notify::new(),
            why: Mutex::new("it is being made".to_owned()),
            shards: Mutex::new(shards),
        })
    }

    /// Asks the server.
    pub(super) async fn ask(&self, request: &Request<'_>) -> Result<Value, Trouble> {
        let line = self.line()?;
        self.ask_on(&line, Route::telling(&nearest(&self.shared, &line)), request).await
    }

    /// Asks the server for a write that replicas acknowledge, if `is_write` finds one in the answer.
    pub(super) async fn ask_acknowledged(
        &self,
        line: &Arc<Line>,
        request: &Request<'_>,
        is_write: impl FnOnce(&Value) -> bool,
    ) -> Result<Value, Trouble> {
        let Some(acknowledged) = &line.acknowledged else {
            return self.ask_on(line, Route::telling(&nearest(&self.shared, line)), request).await;
        };
        let waiting = acknowledged.current()?;
        let value = self.ask_on(line, Route::waiting(&waiting), request).await?;
        if is_write(&value) {
            let waited = self.wait(line, &waiting).await;
            if let Err(Trouble::Silent(_)) = waited {
                acknowledged.give_up(&waiting, &line.host);
            }
            waited?;
        }
        Ok(value)
    }

    /// The connection, if there is one that may serve.
    pub(super) fn line(&self) -> Result<Arc<Line>, Trouble> {
        let line = self.line.load_full().ok_or_else(|| Trouble::Down(self.why.lock().clone()))?;
        self.is_vouched_for(&line)?;
        Ok(line)
    }

    pub(super) fn is_vouched_for(&self, line: &Line) -> Result<(), Trouble> {
        if line.lease.holds(self.shared.clock.as_ref()) {
            return Ok(());
        }
        Err(Trouble::Down("the Sentinels have not said for long that it is still the master".to_owned()))
    }

    /// One of the server's shards.
    pub(super) fn first_shard(&self) -> Shard {
        self.shards.lock().first().copied().unwrap_or(Shard::of_journal())
    }

    /// Begins a shard's epoch where there is none of this process. Gives the connection up when the process is another
    /// than the one that was connected to.
    pub(super) async fn renew(&self, shard: Shard) -> Result<(), Trouble> {
        let line = self.line()?;
        let connection = &mut line.plain.clone();
        let renewed = renew(&self.shared, connection, &line.identity, shard);
        match timeout(self.shared.options.timeout, renewed).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => {
                self.fall(&line, Trouble::Strange.to_string());
                Err(Trouble::Strange)
            }
            Ok(Err(trouble)) => {
                if let Trouble::Broken(_) = trouble {
                    self.fall(&line, trouble.to_string());
                }
                Err(trouble)
            }
            Err(_) => Err(self.silent(&line, self.shared.options.timeout)),
        }
    }

    /// Which shards' epochs are looked after from the next connection on.
    pub(super) fn set_shards(&self, shards: Vec<Shard>) {
        *self.shards.lock() = shards;
    }

    /// Keeps a connection up for as long as the runtime lives.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            let pause = self.breaker.lock().pause_micros(self.shared.clock.monotonic_micros());
            sleep(Duration::from_micros(pause)).await;
            self.turn(Breaker::trying);
            let shards = self.shards.lock().clone();
            let time_max = DIAL_TIME_MAX.max(self.shared.options.timeout * 4);
            let dialled = timeout(time_max, dial(&self.shared, &self.address, &shards)).await;
            match dialled.unwrap_or(Err(Trouble::Silent(time_max))) {
                Ok(line) => self.serve(Arc::new(line)).await,
                Err(trouble) => self.failed(&trouble),
            }
        }
    }

    /// Serves until the connection falls.
    async fn serve(self: &Arc<Self>, line: Arc<Line>) {
        self.turn(Breaker::close);
        self.line.store(Some(Arc::clone(&line)));
        self.shared.metrics.store_connects.with_label_values(&["connected"]).inc();
        tracing::info!(server = %self.address, "connected to Redis");
        while self.is_current(&line) {
            tokio::select! {
                () = self.fallen.notified() => {}
                () = self.look_after(&line) => {}
            }
        }
    }

    /// How long a wait for replicas may take in all.
    pub(super) fn wait_time_max(&self) -> Duration {
        self.shared.options.timeout + self.shared.options.wait_timeout
    }

    fn failed(&self, trouble: &Trouble) {
        self.shared.metrics.store_connects.with_label_values(&["failed"]).inc();
        let why = trouble.to_string();
        // Once for each reason, not once for each try.
        if *self.why.lock() != why {
            tracing::warn!(server = %self.address, why, "cannot connect to Redis; it is tried again and again");
        }
        *self.why.lock() = why;
        let now_micros = self.shared.clock.monotonic_micros();
        self.turn(|breaker| breaker.open(now_micros));
    }

    fn is_current(&self, line: &Arc<Line>) -> bool {
        self.line.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, line))
    }

    async fn ask_on(
        &self,
        line: &Arc<Line>,
        route: Route<'_>,
        request: &Request<'_>,
    ) -> Result<Value, Trouble> {
        match self.send(line, route, request.packed()).await? {
            Ok(value) => Ok(value),
            Err(error) => match request.script() {
                Some(script) if is(&error, ServerErrorKind::NoScript) => {
                    // It was not run, so it may be sent again.
                    self.send(line, route, &script.load()).await?.map_err(|error| Trouble::of(&error))?;
                    let again = self.send(line, route, request.packed()).await?;
                    again.map_err(|error| Trouble::of(&error))
                }
                _ => Err(Trouble::of(&error)),
            },
        }
    }

    /// Waits until replicas have what was written on this connection.
    async fn wait(&self, line: &Arc<Line>, waiting: &Waiting) -> Result<(), Trouble> {
        let options = &self.shared.options;
        let wanted = options.wait_replicas;
        let mut command = redis::cmd("WAIT");
        command.arg(wanted).arg(u64::try_from(options.wait_timeout.as_millis()).unwrap_or(u64::MAX));
        let _wait = waiting.wait();
        let value = self.send_within(self.wait_time_max(), line, Route::waiting(waiting), &command).await?;
        let count = number(&value.map_err(|error| Trouble::of(&error))?).ok_or(Trouble::Unreadable)?;
        let acknowledged = u32::try_from(count).unwrap_or(u32::MAX);
        if acknowledged < wanted {
            return Err(Trouble::Unacknowledged { acknowledged, wanted });
        }
        Ok(())
    }

    /// Sends one command once. The outer error is the connection's, the inner one what the server said.
    pub(super) async fn send(
        &self,
        line: &Arc<Line>,
        route: Route<'_>,
        command: &Cmd,
    ) -> Result<Result<Value, RedisError>, Trouble> {
        self.send_within(self.shared.options.timeout, line, route, command).await
    }

    pub(super) async fn send_within(
        &self,
        time_max: Duration,
        line: &Arc<Line>,
        route: Route<'_>,
        command: &Cmd,
    ) -> Result<Result<Value, RedisError>, Trouble> {
        let mut connection = route.connection.clone();
        match within(time_max, command.query_async::<Value>(&mut connection)).await {
            None if !route.tells => Err(Trouble::Silent(time_max)),
            None => Err(self.silent(line, time_max)),
            Some(Err(error)) if !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
                let trouble = Trouble::Broken(Trouble::said(&error));
                self.fall(line, trouble.to_string());
                Err(trouble)
            }
            Some(answer) => {
                if route.tells && self.was_silent.swap(false, Ordering::Relaxed) {
                    self.breaker.lock().answered();
                }
                if let Err(error) = &answer
                    && is_no_master(error)
                {
                    self.fall(line, Trouble::said(error));
                }
                // The process may have been stopped, and the master deposed, while the answer was on its way.
                self.is_vouched_for(line)?;
                Ok(answer)
            }
        }
    }

    fn silent(&self, line: &Arc<Line>, time_max: Duration) -> Trouble {
        self.was_silent.store(true, Ordering::Relaxed);
        let trouble = Trouble::Silent(time_max);
        let too_often = self.breaker.lock().silent();
        if too_often {
            self.fall(line, trouble.to_string());
        }
        trouble
    }

    /// Gives a connection up, once. Requests fail at once until there is another.
    pub(super) fn fall(&self, line: &Arc<Line>, why: String) {
        let given_up = self.line.compare_and_swap(line, None);
        if !given_up.as_ref().is_some_and(|current| Arc::ptr_eq(current, line)) {
            return;
        }
        tracing::warn!(server = %self.address, why, "gave up the connection to Redis");
        *self.why.lock() = why;
        let now_micros = self.shared.clock.monotonic_micros();
        self.turn(|breaker| breaker.open(now_micros));
        self.fallen.notify_one();
    }

    /// Changes the breaker's state and what metrics say of it.
    fn turn(&self, change: impl FnOnce(&mut Breaker)) {
        let mut breaker = self.breaker.lock();
        let before = breaker.state();
        change(&mut breaker);
        let states = &self.shared.metrics.store_breakers;
        states.with_label_values(&[before.name()]).dec();
        states.with_label_values(&[breaker.state().name()]).inc();
    }
}

impl Drop for Link {
    /// A node that left the cluster is not counted any more.
    fn drop(&mut self) {
        let state = self.breaker.lock().state();
        self.shared.metrics.store_breakers.with_label_values(&[state.name()]).dec();
    }
}

fn is(error: &RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == ErrorKind::Server(kind)
}

/// The server answers, but not as the master that it was connected as.
fn is_no_master(error: &RedisError) -> bool {
    [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown, ServerErrorKind::BusyLoading]
        .into_iter()
        .any(|kind| is(error, kind))
}
