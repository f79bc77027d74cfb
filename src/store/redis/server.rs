//! One server: its session, kept up in the background. Without one, requests fail at once and cost nothing: no client's
//! request is ever the one that finds out.
//!
//! No request is sent twice, but for scripts that the server did not know and so did not run.
//!
//! A session has a connection for each runtime that asks: a request that goes through that of another runtime wakes another thread and
//! is woken by it, which costs more than the request itself. So the first request of a runtime has a connection made that lives there;
//! until it is there, requests go through another one. Silence is counted per connection: one that is dead is dropped and made anew
//! while the others answer. A session without connections is over.
//!
//! The managers of the Redis library have none of this: they connect again where a request finds a connection dead, and to whatever
//! server answers there. Without the heartbeat five cases of `tests::faults` fail, a server that is frozen or evicts among them; without
//! [`Session::check`] three, among them another server at the same address; without the count of silences a dead connection is kept
//! (`tests::sessions`, `tests::lost_answers`). `docs/performance.md` has for how long a fault is felt.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::{fmt, sync::Arc, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::domain::RedisHost;
use crate::fair_timeout::fair_timeout;
use crate::store::redis::connect::{Login, connect, in_time};
use crate::store::redis::error::{RedisError, is, is_no_master, text_of};
use crate::store::redis::info::{Finding, Info, TOO_FEW_REPLICAS};
use crate::store::{
    redis::answers::read, redis::names::Shard, redis::options::Shared, redis::scripts::Request,
    redis::sentinels::Sentinels,
};

/// How long to wait before a server is tried again after a session with it; each failure doubles it.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The states of a circuit breaker, as the metric names them. There is a session: requests go through.
const CLOSED: &str = "closed";
/// There is none.
const OPEN: &str = "open";
/// One is being tried.
const HALF_OPEN: &str = "half_open";

/// The address of a server.
pub(super) enum Address {
    /// At this host.
    Fixed(RedisHost),
    /// The master's, as most of the Sentinels name it.
    Sentinel(Arc<Sentinels>),
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(host) => write!(out, "{host}"),
            Self::Sentinel(sentinels) => write!(out, "master {:?}", sentinels.service),
        }
    }
}

/// A server that is asked.
pub(super) struct Server {
    pub(super) shared: Arc<Shared>,
    pub(super) address: Address,
    session: ArcSwapOption<Session>,
    /// The state that the metric shows.
    breaker: Mutex<&'static str>,
    /// Why there is no session.
    why: Mutex<String>,
    pub(super) shards: Mutex<Vec<Shard>>,
    /// The shards that were claimed last.
    pub(super) claimed: Mutex<Vec<Shard>>,
    /// Findings of the last connection. No finding is logged twice in a row.
    found: Mutex<Vec<(RedisHost, Finding)>>,
    /// The timestamp from which on signatures are taken in all shards, in Unix seconds.
    pub(super) accepted_from_secs: AtomicU64,
    /// How many replicas it lacked when it was asked last, of those that must acknowledge writes.
    replicas_missing: AtomicU32,
}

impl Server {
    pub(super) fn new(shared: Arc<Shared>, address: Address, shards: Vec<Shard>) -> Arc<Self> {
        shared.metrics.store_breakers.with_label_values(&[OPEN]).inc();
        Arc::new(Self {
            shared,
            address,
            session: ArcSwapOption::empty(),
            breaker: Mutex::new(OPEN),
            why: Mutex::new("it is being made".to_owned()),
            shards: Mutex::new(shards),
            claimed: Mutex::default(),
            found: Mutex::default(),
            accepted_from_secs: AtomicU64::new(0),
            replicas_missing: AtomicU32::new(0),
        })
    }

    pub(super) async fn ask(&self, request: &Request<'_>) -> Result<Value, RedisError> {
        let session = self.session()?;
        match request.is_write {
            Some(is_write) => self.ask_to_write(&session, request, is_write).await,
            None => self.ask_on(&session, &self.connection(&session)?, request).await,
        }
    }

    /// `WAIT` holds up everything behind it, so it has a connection of its own. Keys change rarely. A script that comes to the
    /// server only when nobody waits for it any more does nothing: another change may have been made meanwhile.
    async fn ask_to_write(
        &self,
        session: &Arc<Session>,
        request: &Request<'_>,
        is_write: fn(&Value) -> bool,
    ) -> Result<Value, RedisError> {
        let options = &self.shared.options;
        let waits = options.wait_replicas > 0;
        let connection = match waits {
            true => Connection::new(session.connect(&self.shared).await?),
            false => self.connection(session)?,
        };
        let mut command = request.command.clone();
        if request.script.is_some() {
            let time = self.send(session, &connection, &redis::cmd("TIME"), options.timeout).await??;
            let (secs, micros): (u64, u64) = read(&time)?;
            command.arg(u128::from(secs * 1_000_000 + micros) + options.timeout.as_micros());
        }
        let value = self.ask_on(session, &connection, &Request { command, ..*request }).await?;
        if waits && is_write(&value) {
            let millis = u64::try_from(options.wait_timeout.as_millis()).unwrap_or(u64::MAX);
            let mut wait = redis::cmd("WAIT");
            wait.arg(options.wait_replicas).arg(millis);
            let time_max = options.timeout + options.wait_timeout;
            let waited = self.send(session, &connection, &wait, time_max).await??;
            let acknowledged: i64 = read(&waited)?;
            if acknowledged < options.wait_replicas.into() {
                let (server, wanted) = (session.host.clone(), options.wait_replicas);
                return Err(RedisError::Unacknowledged { server, acknowledged, wanted });
            }
        }
        Ok(value)
    }

    pub(super) async fn ask_on(
        &self,
        session: &Arc<Session>,
        connection: &Arc<Connection>,
        request: &Request<'_>,
    ) -> Result<Value, RedisError> {
        let time_max = self.shared.options.timeout;
        match self.send(session, connection, &request.command, time_max).await? {
            Ok(value) => Ok(value),
            Err(error) => match request.script {
                Some(script) if is(&error, ServerErrorKind::NoScript) => {
                    // It was not run, so it may be sent again.
                    self.send(session, connection, &script.load(), time_max).await??;
                    Ok(self.send(session, connection, &request.command, time_max).await??)
                }
                _ => Err(error.into()),
            },
        }
    }

    /// The session, if there is one.
    pub(super) fn session(&self) -> Result<Arc<Session>, RedisError> {
        self.session.load_full().ok_or_else(|| RedisError::Down(self.why.lock().clone()))
    }

    /// By how many microseconds its clock is ahead of this machine's, as far as the session knows.
    pub(super) fn clock_offset_micros(&self) -> Option<i64> {
        let session = self.session.load();
        let offset = session.as_ref()?.clock_offset_micros.load(Ordering::Relaxed);
        (offset != i64::MIN).then_some(offset)
    }

    /// How many replicas it lacks of those that must acknowledge writes; `None` where none must, or without a session.
    pub(super) fn replicas_missing(&self) -> Option<u32> {
        let is_known = self.shared.options.wait_replicas > 0 && self.session.load().is_some();
        is_known.then(|| self.replicas_missing.load(Ordering::Relaxed))
    }

    /// Notes how many replicas the server has now. The log says it when they become too few, and when they are enough again.
    fn note_replicas(&self, server: &RedisHost, info: &Info) {
        let missing = self.shared.options.wait_replicas.saturating_sub(info.replicas());
        let before = self.replicas_missing.swap(missing, Ordering::Relaxed);
        if before == 0 && missing > 0 {
            tracing::warn!(%server, missing, "Redis: {TOO_FEW_REPLICAS}");
        } else if before > 0 && missing == 0 {
            tracing::info!(%server, "Redis has as many replicas again as store.redis.wait_replicas wants");
        }
    }

    /// Keeps a session up.
    pub(super) async fn keep_session(self: &Arc<Self>) {
        let mut pause = PAUSE;
        loop {
            self.show(HALF_OPEN);
            let options = &self.shared.options;
            match in_time(options.connect_timeout(), self.begin()).await {
                Ok(session) => {
                    pause = PAUSE;
                    self.serve(Arc::new(session)).await;
                }
                Err(error) => self.failed(&error.asked_as(&Login::Server.words(options))),
            }
            sleep(pause).await;
            pause = PAUSE_MAX.min(2 * pause);
        }
    }

    /// Begins a session with a server that may be used: what is not claimed there yet is claimed.
    async fn begin(&self) -> Result<Session, RedisError> {
        let shared = &self.shared;
        let host = match &self.address {
            Address::Fixed(host) => host.clone(),
            Address::Sentinel(sentinels) => sentinels.master(shared).await?,
        };
        let mut connection = connect(shared, &host, Login::Server).await?;
        let info = Info::of(&mut connection).await?;
        info.check_usable(&info)?;
        self.claim(&mut connection).await?;
        self.note_replicas(&host, &info);
        let found = info.findings(&mut connection, shared.options.wait_replicas).await;
        let others = found.into_iter().filter(|finding| *finding != TOO_FEW_REPLICAS);
        let found: Vec<_> = others.map(|finding| (host.clone(), finding)).collect();
        let before = std::mem::replace(&mut *self.found.lock(), found.clone());
        for (server, finding) in found.iter().filter(|finding| !before.contains(finding)) {
            tracing::warn!(%server, "Redis: {finding}");
        }
        Ok(Session {
            host,
            info,
            connections: ArcSwap::from_pointee(vec![Connection::new(connection)]),
            next_connect_micros: AtomicU64::new(0),
            clock_offset_micros: AtomicI64::new(i64::MIN),
            ended: Notify::new(),
        })
    }

    /// Serves until the session ends.
    async fn serve(self: &Arc<Self>, session: Arc<Session>) {
        self.show(CLOSED);
        self.session.store(Some(Arc::clone(&session)));
        self.shared.metrics.store_connects.with_label_values(&["connected"]).inc();
        tracing::info!(server = %self.address, "connected to Redis");
        tokio::select! {
            () = session.ended.notified() => {}
            () = self.watch(&session) => {}
        }
    }

    fn failed(&self, error: &RedisError) {
        self.shared.metrics.store_connects.with_label_values(&["failed"]).inc();
        let why = error.to_string();
        // Once for each reason, not once for each try.
        if *self.why.lock() != why {
            tracing::warn!(server = %self.address, why, "cannot connect to Redis; it is tried again and again");
        }
        *self.why.lock() = why;
        self.show(OPEN);
    }

    /// The connection for requests of the current runtime.
    pub(super) fn connection(&self, session: &Arc<Session>) -> Result<Arc<Connection>, RedisError> {
        let silent = || RedisError::Down("no connection answers".to_owned());
        session.connection(&self.shared).ok_or_else(silent)
    }

    /// Sends one command once. The outer error is the connection's, the inner one the server's.
    pub(super) async fn send(
        &self,
        session: &Arc<Session>,
        connection: &Arc<Connection>,
        command: &Cmd,
        time_max: Duration,
    ) -> Result<RedisResult<Value>, RedisError> {
        let mut redis = connection.redis.clone();
        // `query_async` would box the answer.
        let answer = async { redis.send_packed_command(command).await?.extract_error() };
        match fair_timeout(time_max, answer).await {
            None => {
                let error = RedisError::Timeout(time_max);
                if connection.silences.fetch_add(1, Ordering::Relaxed) + 1 >= SILENCES_MAX {
                    self.drop_connection(session, connection, &error);
                }
                Err(error)
            }
            Some(Err(error)) if !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
                let error = RedisError::from(error);
                self.drop_connection(session, connection, &error);
                Err(error)
            }
            Some(answer) => {
                // Nearly always 0 already: a look costs less than a write to what other threads look at.
                if connection.silences.load(Ordering::Relaxed) > 0 {
                    connection.silences.store(0, Ordering::Relaxed);
                }
                if let Err(error) = &answer
                    && is_no_master(error)
                {
                    self.end(session, text_of(error));
                }
                Ok(answer)
            }
        }
    }

    fn drop_connection(&self, session: &Arc<Session>, dead: &Arc<Connection>, error: &RedisError) {
        if session.remove(dead) {
            self.end(session, error.to_string());
        }
    }

    /// Ends a session, once. Requests fail at once until there is another.
    pub(super) fn end(&self, session: &Arc<Session>, why: String) {
        let ended = self.session.compare_and_swap(session, None);
        if ended.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            tracing::warn!(server = %self.address, why, "gave up the connection to Redis");
            *self.why.lock() = why;
            self.show(OPEN);
            session.ended.notify_one();
        }
    }

    /// Shows a state in the metric.
    fn show(&self, state: &'static str) {
        let before = std::mem::replace(&mut *self.breaker.lock(), state);
        let states = &self.shared.metrics.store_breakers;
        states.with_label_values(&[before]).dec();
        states.with_label_values(&[state]).inc();
    }
}

impl Drop for Server {
    /// A node that left the cluster is not counted any more.
    fn drop(&mut self) {
        self.shared.metrics.store_breakers.with_label_values(&[*self.breaker.lock()]).dec();
    }
}

/// So many requests in a row without an answer end a connection.
const SILENCES_MAX: u32 = 4;

/// How long to wait before a connection that could not be made is tried again, in microseconds.
const PAUSE_MICROS: u64 = 1_000_000;

/// The connections to one process of a server that may be used.
pub(super) struct Session {
    pub(super) host: RedisHost,
    /// The server, as it was when the session began.
    info: Info,
    pub(super) connections: ArcSwap<Vec<Arc<Connection>>>,
    /// Before this moment none is made, in monotonic microseconds: they are made one at a time.
    next_connect_micros: AtomicU64,
    /// By how many microseconds the server's clock is ahead of this machine's; [`i64::MIN`] until that is known.
    clock_offset_micros: AtomicI64,
    ended: Notify,
}

/// One connection.
pub(super) struct Connection {
    pub(super) redis: MultiplexedConnection,
    runtime: Id,
    silences: AtomicU32,
}

impl Connection {
    pub(super) fn new(redis: MultiplexedConnection) -> Arc<Self> {
        Arc::new(Self { redis, runtime: Handle::current().id(), silences: AtomicU32::new(0) })
    }
}

impl Session {
    /// The current runtime's connection. Until there is one, another that is not silent; `None` where there is none.
    pub(super) fn connection(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<Arc<Connection>> {
        let runtime = Handle::current();
        let connections = self.connections.load();
        if let Some(own) = connections.iter().find(|connection| connection.runtime == runtime.id()) {
            return Some(Arc::clone(own));
        }
        let now = shared.clock.monotonic_micros();
        let later = |next| (now >= next).then_some(now.saturating_add(PAUSE_MICROS));
        if self.next_connect_micros.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok() {
            runtime.spawn(Arc::clone(self).add(Arc::clone(shared)));
        }
        connections.iter().find(|other| other.silences.load(Ordering::Relaxed) == 0).cloned()
    }

    /// Drops a connection. True when it was the last one.
    pub(super) fn remove(&self, dead: &Arc<Connection>) -> bool {
        self.connections.rcu(|connections| {
            let others = connections.iter().filter(|other| !Arc::ptr_eq(other, dead)).cloned();
            others.collect::<Vec<_>>()
        });
        self.connections.load().is_empty()
    }

    /// Succeeds when the server may still be used, and is the process that the session began with. At one address there
    /// may be another one a moment later.
    pub(super) fn check(&self, info: &Info) -> Result<(), RedisError> {
        info.check_usable(&self.info)?;
        info.check_same(&self.info)
    }

    /// Makes another connection to the same process, or none.
    pub(super) async fn connect(&self, shared: &Shared) -> Result<MultiplexedConnection, RedisError> {
        let connected = async {
            let mut connection = connect(shared, &self.host, Login::Server).await?;
            self.check(&Info::of(&mut connection).await?)?;
            Ok(connection)
        };
        in_time(shared.options.connect_timeout(), connected).await
    }

    /// Makes a connection that lives in the current runtime.
    async fn add(self: Arc<Self>, shared: Arc<Shared>) {
        match self.connect(&shared).await {
            Ok(redis) => {
                let made = Connection::new(redis);
                self.connections.rcu(|connections| {
                    let others = connections.iter().filter(|other| other.runtime != made.runtime).cloned();
                    others.chain([Arc::clone(&made)]).collect::<Vec<_>>()
                });
            }
            // Others serve meanwhile.
            Err(error) => tracing::debug!(%error, "cannot make another connection to Redis"),
        }
    }
}

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
                        server.check_server(&session, &connection).await;
                    } else {
                        let time_max = server.shared.options.timeout;
                        let _ = server.send(&session, &connection, &redis::cmd("TIME"), time_max).await;
                    }
                });
            }
            // A failure to send is counted where it happens. A silent connection holds up none that answered before.
            while asked.join_next().await.is_some() {}
            // The store's own runtime gets its connection back here, too, if it has lost it.
            if let Err(error) = self.check_claim(session, beat).await {
                tracing::debug!(%error, "cannot look at what Redis is for");
            }
        }
    }

    /// Asks the server about itself, and ends the session where it may not be used any more.
    async fn check_server(&self, session: &Arc<Session>, connection: &Arc<Connection>) {
        let (time_max, asked_at) = (self.shared.options.timeout, self.shared.clock.unix_millis());
        let Ok(answer) = self.send(session, connection, &redis::cmd("INFO"), time_max).await else { return };
        let info =
            answer.map_err(RedisError::from).and_then(|answer| Ok(Info::read(&read::<String>(&answer)?)));
        match info.and_then(|info| session.check(&info).map(|()| info)) {
            Ok(info) => {
                self.note_time(session, &info, asked_at);
                if self.session.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
                    self.note_replicas(&session.host, &info);
                }
            }
            Err(error) => self.end(session, error.to_string()),
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
