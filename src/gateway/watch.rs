//! Looks after upstreams in the background: where their names lead, and whether they answer.
//!
//! No request ever waits for a name or a check. Names and checks have places of their own, so that neither waits for the
//! other. Each has rounds: whatever is due is begun in turn, as soon as there is a place, and nothing twice before all else.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures_util::future::join_all;
use http::StatusCode;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, OrErr};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::gateway::site::{LiveTable, Table};
use crate::gateway::upstreams::{Member, Trouble, UpstreamState, Watched};
use crate::gateway::{library::faults::is_without_descriptors, site::Site};
use crate::ports::{Clock, micros};
use crate::tls::pem::unsupported_signature;

/// How often it is looked what is due, at least.
const TICK: Duration = Duration::from_millis(250);

/// How long nothing is looked at between two rounds, at least: the shortest interval of checks.
const PAUSE: Duration = Duration::from_millis(10);

/// How often it is said that upstreams are watched late.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// How often the name of an upstream is looked up.
const RESOLVE_EVERY: Duration = Duration::from_secs(10);

/// How long a look-up may take.
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(5);

/// How many checks are under way at once, and how many look-ups at a start or reload; in the background half as many.
pub(crate) const TASKS_MAX: usize = 64;

/// How many tenants it takes to fill all places.
const TENANTS_MIN: usize = 4;

/// How many addresses of one name are used.
const ADDRESSES_MAX: usize = 16;

/// How long a start or reload waits for the names of new upstreams.
const NEW_NAMES_TIME_MAX: Duration = Duration::from_secs(3);

/// The background task.
pub(crate) struct Watch {
    table: Arc<LiveTable>,
    clock: Arc<dyn Clock>,
    look_ups: Kind,
    checks: Kind,
}

/// A kind of task. An upstream has one of them under way at most.
struct Kind {
    name: &'static str,
    places: Arc<Semaphore>,
    /// How many of the places the upstreams of one tenant may take: those that hang hold up no other tenant's.
    share: usize,
    of_tenant: fn(&Watched) -> &AtomicUsize,
    /// True if an upstream is due whose tenant has its share.
    waits: AtomicBool,
    /// Told when a task has ended.
    ended: Arc<Notify>,
    /// How often it is due, if it is.
    every: fn(&UpstreamState) -> Option<Duration>,
    next: fn(&UpstreamState) -> &AtomicU64,
    is_under_way: fn(&UpstreamState) -> &AtomicBool,
}

/// The inputs of a check, detached from the table.
struct Check {
    state: Arc<UpstreamState>,
    tenant: Arc<str>,
    peer: HttpPeer,
    host: http::HeaderValue,
    /// True to speak TLS where a connection alone would do.
    shakes_hands: bool,
}

/// A look-up or check that is under way until this is dropped, even by a panic.
struct UnderWay {
    state: Arc<UpstreamState>,
    flag: fn(&UpstreamState) -> &AtomicBool,
    watched: Arc<Watched>,
    of_tenant: fn(&Watched) -> &AtomicUsize,
    ended: Arc<Notify>,
    _place: OwnedSemaphorePermit,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        (self.flag)(&self.state).store(false, Ordering::Release);
        (self.of_tenant)(&self.watched).fetch_sub(1, Ordering::Release);
        self.ended.notify_one();
    }
}

impl Watch {
    /// Looks after the upstreams of whatever table is in force.
    pub(crate) fn new(table: Arc<LiveTable>, clock: Arc<dyn Clock>) -> Self {
        let look_ups = Kind {
            name: "look-ups",
            places: Arc::new(Semaphore::new(TASKS_MAX / 2)),
            share: TASKS_MAX / 2 / TENANTS_MIN,
            of_tenant: |watched| &watched.look_ups,
            waits: AtomicBool::new(false),
            ended: Arc::default(),
            every: |state| state.is_looked_up().then_some(RESOLVE_EVERY),
            next: |state| &state.shared.next_resolution,
            is_under_way: |state| &state.shared.is_in_resolution,
        };
        let checks = Kind {
            name: "checks",
            places: Arc::new(Semaphore::new(TASKS_MAX)),
            share: TASKS_MAX / TENANTS_MIN,
            of_tenant: |watched| &watched.checks,
            waits: AtomicBool::new(false),
            ended: Arc::default(),
            every: |state| state.health.interval,
            next: |state| &state.next_check,
            is_under_way: |state| &state.shared.is_in_check,
        };
        Self { table, clock, look_ups, checks }
    }

    /// Looks after them for as long as it is polled.
    pub(crate) async fn run(self: Arc<Self>) {
        let connector = Arc::new(Connector::new(None));
        let look_up = |site: &Site, member: &Member, under_way| {
            let (state, tenant) = (Arc::clone(&member.state), Arc::clone(&site.tenant.id));
            tokio::spawn(async move {
                resolve(&state, &tenant).await;
                drop(under_way);
            });
        };
        let check = |site: &Site, member: &Member, under_way| {
            let check = Check::of(site, member, false);
            let connector = Arc::clone(&connector);
            tokio::spawn(async move {
                check.run(&connector).await;
                drop(under_way);
            });
        };
        tokio::join!(self.keep(&self.look_ups, look_up), self.keep(&self.checks, check));
    }

    /// Begins round after round, and says if what is due waits for more than its interval.
    async fn keep(&self, kind: &Kind, begin: impl Fn(&Site, &Member, UnderWay)) {
        let mut quiet_until = 0;
        loop {
            let (late, rest) = self.round(kind, &begin).await;
            let now = self.clock.monotonic_micros();
            if late > TICK && now >= quiet_until {
                quiet_until = now.saturating_add(micros(SAY_EVERY));
                tracing::warn!(tasks = kind.name, ?late, "upstreams are watched later than they should be");
            }
            tokio::time::sleep(PAUSE).await;
            let rest = rest.clamp(PAUSE, TICK) - PAUSE;
            if kind.waits.swap(false, Ordering::Relaxed) {
                // It may go on when a task of its tenant has ended.
                let _ = timeout(rest, kind.ended.notified()).await;
            } else {
                tokio::time::sleep(rest).await;
            }
        }
    }

    /// Begins whatever is due of a kind, each when there is a place. Gives the most that one came later than its interval,
    /// and how long nothing else is due.
    async fn round(&self, kind: &Kind, begin: &impl Fn(&Site, &Member, UnderWay)) -> (Duration, Duration) {
        let (table, began) = (self.table.load_full(), self.clock.monotonic_micros());
        let (mut late, mut rest) = (0, u64::MAX);
        for site in &table.sites {
            for member in site.members() {
                let (state, Some(every)) = (&member.state, (kind.every)(&member.state)) else {
                    continue;
                };
                let (due, now) = ((kind.next)(state).load(Ordering::Relaxed), self.clock.monotonic_micros());
                if now < due {
                    rest = rest.min(due - now);
                    continue;
                }
                if (kind.is_under_way)(state).load(Ordering::Acquire) {
                    continue;
                }
                if (kind.of_tenant)(&site.watched).load(Ordering::Acquire) >= kind.share {
                    kind.waits.store(true, Ordering::Relaxed);
                    continue;
                }
                let Ok(place) = Arc::clone(&kind.places).acquire_owned().await else { continue };
                if !Arc::ptr_eq(&table, &self.table.load()) {
                    // The tables were swapped meanwhile: the next round has the upstreams that count.
                    return (Duration::from_micros(late), Duration::ZERO);
                }
                let now = self.clock.monotonic_micros();
                // One that is new is due since this round.
                let since = if due == 0 { began } else { due };
                late = late.max(now.saturating_sub(since).saturating_sub(micros(every)));
                rest = rest.min(micros(every));
                (kind.next)(state).store(now.saturating_add(micros(every)), Ordering::Relaxed);
                (kind.is_under_way)(state).store(true, Ordering::Release);
                (kind.of_tenant)(&site.watched).fetch_add(1, Ordering::Release);
                begin(site, member, kind.under_way(site, state, place));
            }
        }
        (Duration::from_micros(late), Duration::from_micros(rest))
    }
}

impl Kind {
    fn under_way(&self, site: &Site, state: &Arc<UpstreamState>, place: OwnedSemaphorePermit) -> UnderWay {
        UnderWay {
            state: Arc::clone(state),
            flag: self.is_under_way,
            watched: Arc::clone(&site.watched),
            of_tenant: self.of_tenant,
            ended: Arc::clone(&self.ended),
            _place: place,
        }
    }
}

impl Check {
    fn of(site: &Site, member: &Member, shakes_hands: bool) -> Self {
        Self {
            state: Arc::clone(&member.state),
            tenant: Arc::clone(&site.tenant.id),
            peer: member.template.clone(),
            host: member.host.clone(),
            shakes_hands,
        }
    }

    async fn run(&self, connector: &Connector) {
        // A check that can't be made, for lack of an address or of descriptors, says nothing about the upstream.
        let Some(outcome) = self.ask(connector).await else { return };
        let is_healthy = outcome.is_ok();
        if self.state.checked(is_healthy) {
            let (tenant, upstream) = (&*self.tenant, &self.state.upstream);
            if is_healthy {
                tracing::info!(tenant, %upstream, "answers its checks again");
            } else {
                tracing::warn!(tenant, %upstream, "fails its checks: it gets no requests while another can");
            }
        }
    }

    /// Succeeds if an address of the upstream is healthy; one is enough. Else it says why not. `None` if it can't be asked.
    async fn ask(&self, connector: &Connector) -> Option<Result<(), String>> {
        let mut outcome = None;
        for address in self.state.addresses.load_full().iter().take(ADDRESSES_MAX) {
            let asked = timeout(self.state.health.timeout, self.ask_at(address.at, connector)).await;
            outcome = match asked {
                Ok(Ok(None)) => return Some(Ok(())),
                Ok(Ok(Some(status))) if status.is_success() || status.is_redirection() => {
                    return Some(Ok(()));
                }
                Ok(Ok(Some(status))) => Some(Err(format!("its check is answered with {status}"))),
                Ok(Err(error)) if is_without_descriptors(&error) => return None,
                Ok(Err(error)) => Some(Err(reason(&error))),
                Err(_) => Some(Err(format!("no answer within {:?}", self.state.health.timeout))),
            };
        }
        outcome
    }

    /// The status that a GET is answered with; `None` without a path for it: then a connection is made.
    async fn ask_at(
        &self,
        address: SocketAddr,
        connector: &Connector,
    ) -> pingora::Result<Option<StatusCode>> {
        let path = self.state.health.path.as_deref();
        if path.is_none() && !self.shakes_hands {
            let connected = TcpStream::connect(address).await;
            return connected.map(|_| None).or_err(ErrorType::ConnectError, "no connection");
        }
        let mut peer = self.peer.clone();
        peer._address = address.into();
        // A connection of its own for each check: one that is kept may be dead when new ones are not, or the reverse.
        peer.options.max_h2_streams = 1;
        let (mut session, _) = connector.get_http_session(&peer).await?;
        let Some(path) = path else { return Ok(None) };
        let mut request = RequestHeader::build("GET", path.as_bytes(), Some(2))?;
        request.insert_header("Host", &self.host)?;
        request.insert_header("User-Agent", "tiergate-health")?;
        session.write_request_header(Box::new(request)).await?;
        session.finish_request_body().await?;
        session.read_response_header().await?;
        let status = session.response_header().map(|head| head.status);
        session.shutdown().await;
        status.map(Some).ok_or_else(|| Error::explain(ErrorType::ReadError, "no status"))
    }
}

/// The kind of an error and its innermost cause. A local address is no cause.
fn reason(error: &Error) -> String {
    let text = error.to_string().replace(" context: ", " cause: ");
    if let Some(why) = unsupported_signature(&text) {
        return format!("{}: {why}", error.reason_str());
    }
    let cause = text.rsplit(" cause: ").find(|cause| !cause.starts_with("local address"));
    format!("{}: {}", error.reason_str(), cause.unwrap_or_default().trim())
}

/// Checks each upstream of a table once, all at the same time and within a limit: its tenant and itself, then whether it
/// answers or connects, or what is wrong. Without a path for checks a connection is enough, over TLS where the upstream
/// speaks that.
pub(crate) async fn check_all(table: &Table, limit: Duration) -> Vec<(String, Result<String, String>)> {
    resolve_new_names(table).await;
    let (connector, tasks) = (Connector::new(None), Semaphore::new(TASKS_MAX));
    let mut checks = Vec::new();
    for site in &table.sites {
        for member in site.own_upstreams() {
            let (check, connector, tasks) = (Check::of(site, member, true), &connector, &tasks);
            checks.push(async move {
                let asked = timeout(limit, async {
                    let _place = tasks.acquire().await;
                    check.ask(connector).await
                });
                let healthy = if check.state.health.path.is_some() { "is healthy" } else { "connects" };
                let outcome = match asked.await {
                    _ if let Some(Trouble::Refused(address, why)) = check.state.trouble() => {
                        Err(format!("its name leads to {address}, {why}"))
                    }
                    Ok(Some(outcome)) => outcome.map(|()| healthy.to_owned()),
                    Ok(None) => Err("its name can't be looked up, or no descriptor is left".to_owned()),
                    Err(_) => Err("there was no time to ask it".to_owned()),
                };
                (format!("tenant {} upstream {}", check.tenant, check.state.upstream), outcome)
            });
        }
    }
    join_all(checks).await
}

async fn resolve(state: &UpstreamState, tenant: &str) {
    let upstream = &state.upstream;
    let looked_up = timeout(RESOLVE_TIME_MAX, lookup_host((&*upstream.host, upstream.port))).await;
    let (found, is_gone): (Vec<SocketAddr>, _) = match looked_up {
        Ok(Ok(addresses)) => (addresses.take(ADDRESSES_MAX).collect(), false),
        Ok(Err(error)) => (Vec::new(), says_gone(&error)),
        Err(_) => (Vec::new(), false),
    };
    match state.resolved(&found, is_gone) {
        Some(Trouble::Gone) => tracing::error!(tenant, %upstream, "its name leads nowhere any more"),
        Some(Trouble::NoAddress) => tracing::warn!(tenant, %upstream, "its name can't be looked up"),
        Some(Trouble::Refused(address, why)) => {
            tracing::error!(tenant, %upstream, %address, "its name leads to an address that is not used: {why}");
        }
        None => {}
    }
}

/// True if there is no such name, or no address of it: a whole text of glibc or musl, all that the standard library keeps.
fn says_gone(error: &std::io::Error) -> bool {
    let glibc = ["Name or service not known", "No address associated with hostname"];
    let musl = ["Name does not resolve", "Name has no usable address"];
    let text = error.to_string();
    let said = text.strip_prefix("failed to lookup address information: ");
    said.is_some_and(|said| glibc.contains(&said) || musl.contains(&said))
}

/// Looks up the names of upstreams that are new in a table, so that it can be put in force without a request that has
/// nowhere to go. Waits a bounded time; what is not known then is looked up in the background.
pub(crate) async fn resolve_new_names(table: &Table) {
    let is_new = |member: &&Member| member.state.is_looked_up() && !member.state.has_address();
    let of_site =
        |site| Site::members(site).filter(is_new).enumerate().map(move |(at, member)| (at, site, member));
    let mut new: Vec<_> = table.sites.iter().flat_map(|site| of_site(site)).collect();
    // The first one of each tenant before the second one of any: names that hang hold up few others.
    new.sort_by_key(|(at, ..)| *at);
    let tasks = Arc::new(Semaphore::new(TASKS_MAX));
    let mut lookups = JoinSet::new();
    for (_, site, member) in new {
        let (state, tenant) = (Arc::clone(&member.state), Arc::clone(&site.tenant.id));
        let tasks = Arc::clone(&tasks);
        lookups.spawn(async move {
            let _place = tasks.acquire().await;
            resolve(&state, &tenant).await;
        });
    }
    let all = async { while lookups.join_next().await.is_some() {} };
    // The rest is given up with the set, and due again at once.
    let _ = timeout(NEW_NAMES_TIME_MAX, all).await;
}

#[cfg(test)]
mod tests;
