//! Looks after upstreams in the background: where their names lead, and whether they answer.
//!
//! No request ever waits for a name or a check. Names and checks have places of their own, so that neither waits for the
//! other. Whatever is due waits in turn for a place, and nothing gets two before all else has one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::{net::SocketAddr, time::Duration};

use futures_util::future::{BoxFuture, FutureExt, join_all};
use http::StatusCode;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType, OrErr};
use tokio::net::{TcpStream, lookup_host};
use tokio::{sync::Semaphore, time::timeout};

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
    look_ups: Arc<Kind>,
    checks: Arc<Kind>,
}

/// A kind of task. An upstream has one of them waiting or under way at most.
struct Kind {
    name: &'static str,
    places: Semaphore,
    /// How many of the places the upstreams of one tenant may take: those that hang hold up no other tenant's.
    share: usize,
    of_tenant: fn(&Watched) -> &OnceLock<Semaphore>,
    /// The most that one has begun later than its interval since that was last looked at, in microseconds.
    late: AtomicU64,
    /// How often it is due, if it is.
    every: fn(&UpstreamState) -> Option<Duration>,
    next: fn(&UpstreamState) -> &AtomicU64,
    is_begun: fn(&UpstreamState) -> &AtomicBool,
}

/// A look-up or check that has begun until this is dropped, even by a panic.
struct Begun<'a>(&'a AtomicBool);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Watch {
    /// Looks after the upstreams of whatever table is in force.
    pub(crate) fn new(table: Arc<LiveTable>, clock: Arc<dyn Clock>) -> Self {
        let look_ups = Kind {
            name: "look-ups",
            places: Semaphore::new(TASKS_MAX / 2),
            share: TASKS_MAX / 2 / TENANTS_MIN,
            of_tenant: |watched| &watched.look_ups,
            late: AtomicU64::new(0),
            every: |state| state.is_looked_up().then_some(RESOLVE_EVERY),
            next: |state| &state.shared.next_resolution,
            is_begun: |state| &state.shared.is_in_resolution,
        };
        let checks = Kind {
            name: "checks",
            places: Semaphore::new(TASKS_MAX),
            share: TASKS_MAX / TENANTS_MIN,
            of_tenant: |watched| &watched.checks,
            late: AtomicU64::new(0),
            every: |state| state.health.interval,
            next: |state| &state.next_check,
            is_begun: |state| &state.shared.is_in_check,
        };
        Self { table, clock, look_ups: Arc::new(look_ups), checks: Arc::new(checks) }
    }

    /// Looks after them for as long as it is polled.
    pub(crate) async fn run(self: Arc<Self>) {
        let connector = Arc::new(Connector::new(None));
        let look_ups = |site: &Site, member: &Member| {
            let (state, tenant) = (Arc::clone(&member.state), Arc::clone(&site.tenant.id));
            move || async move { resolve(&state, &tenant).await }.boxed()
        };
        let checks = |site: &Site, member: &Member| {
            let (member, tenant) = (member.clone(), Arc::clone(&site.tenant.id));
            let connector = Arc::clone(&connector);
            move || async move { check(&member, &tenant, &connector).await }.boxed()
        };
        tokio::join!(self.keep(&self.look_ups, look_ups), self.keep(&self.checks, checks));
    }

    /// Begins round after round, and says if what was due has waited for more than its interval.
    async fn keep<T>(&self, kind: &Arc<Kind>, task: impl Fn(&Site, &Member) -> T)
    where
        T: FnOnce() -> BoxFuture<'static, ()> + Send + 'static,
    {
        let mut quiet_until = 0;
        loop {
            let rest = self.round(kind, &task);
            let late = Duration::from_micros(kind.late.swap(0, Ordering::Relaxed));
            let now = self.clock.monotonic_micros();
            if late > TICK && now >= quiet_until {
                quiet_until = now.saturating_add(micros(SAY_EVERY));
                tracing::warn!(tasks = kind.name, ?late, "upstreams are watched later than they should be");
            }
            tokio::time::sleep(rest.clamp(PAUSE, TICK)).await;
        }
    }

    /// Begins whatever is due of a kind: each waits in turn for a place. Gives how long nothing else is due.
    fn round<T>(&self, kind: &Arc<Kind>, task: &impl Fn(&Site, &Member) -> T) -> Duration
    where
        T: FnOnce() -> BoxFuture<'static, ()> + Send + 'static,
    {
        let (table, round) = (self.table.load_full(), self.clock.monotonic_micros());
        let mut rest = u64::MAX;
        let all = table.sites.iter().flat_map(|site| site.members().map(move |member| (site, member)));
        for (site, member) in all {
            let Some(every) = (kind.every)(&member.state).map(micros) else { continue };
            let due = (kind.next)(&member.state).load(Ordering::Relaxed);
            if round < due {
                rest = rest.min(due - round);
                continue;
            }
            if (kind.is_begun)(&member.state).swap(true, Ordering::AcqRel) {
                continue;
            }
            rest = rest.min(every);
            // One that is new is due since this round.
            let since = if due == 0 { round } else { due };
            let (kind, clock, task) = (Arc::clone(kind), Arc::clone(&self.clock), task(site, member));
            let (state, watched) = (Arc::clone(&member.state), Arc::clone(&site.watched));
            let table = Arc::downgrade(&table);
            tokio::spawn(async move {
                let _begun = Begun((kind.is_begun)(&state));
                let own = (kind.of_tenant)(&watched).get_or_init(|| Semaphore::new(kind.share));
                let _places = (own.acquire().await, kind.places.acquire().await);
                if table.strong_count() == 0 {
                    return; // A reload has replaced it: what is still there waits anew.
                }
                let now = clock.monotonic_micros();
                kind.late.fetch_max(now.saturating_sub(since).saturating_sub(every), Ordering::Relaxed);
                (kind.next)(&state).store(now.saturating_add(every), Ordering::Relaxed);
                task().await;
            });
        }
        Duration::from_micros(rest)
    }
}

/// Checks an upstream, and says if that has changed how it is.
async fn check(member: &Member, tenant: &str, connector: &Connector) {
    // A check that can't be made, for lack of an address or of descriptors, says nothing about the upstream.
    let Some(outcome) = ask(member, false, connector).await else { return };
    let is_healthy = outcome.is_ok();
    if member.state.checked(is_healthy) {
        let upstream = &member.state.upstream;
        if is_healthy {
            tracing::info!(tenant, %upstream, "answers its checks again");
        } else {
            tracing::warn!(tenant, %upstream, "fails its checks: it gets no requests while another can");
        }
    }
}

/// Succeeds if an address of the upstream is healthy; one is enough. Else it says why not. `None` if it can't be asked. Where a
/// connection alone would do, `shakes_hands` has TLS spoken too.
async fn ask(member: &Member, shakes_hands: bool, connector: &Connector) -> Option<Result<(), String>> {
    let (state, mut outcome) = (&member.state, None);
    for address in state.addresses.load_full().iter().take(ADDRESSES_MAX) {
        let asked = ask_at(address.at, member, shakes_hands, connector);
        outcome = match timeout(state.health.timeout, asked).await {
            Ok(Ok(None)) => return Some(Ok(())),
            Ok(Ok(Some(status))) if status.is_success() || status.is_redirection() => return Some(Ok(())),
            Ok(Ok(Some(status))) => Some(Err(format!("its check is answered with {status}"))),
            Ok(Err(error)) if is_without_descriptors(&error) => return None,
            Ok(Err(error)) => Some(Err(reason(&error))),
            Err(_) => Some(Err(format!("no answer within {:?}", state.health.timeout))),
        };
    }
    outcome
}

/// The status that a GET is answered with; `None` without a path for it: then a connection is made.
async fn ask_at(
    address: SocketAddr,
    member: &Member,
    shakes_hands: bool,
    connector: &Connector,
) -> pingora::Result<Option<StatusCode>> {
    let path = member.state.health.path.as_deref();
    if path.is_none() && !shakes_hands {
        let connected = TcpStream::connect(address).await;
        return connected.map(|_| None).or_err(ErrorType::ConnectError, "no connection");
    }
    let mut peer = member.template.clone();
    peer._address = address.into();
    // A connection of its own for each check: one that is kept may be dead when new ones are not, or the reverse.
    peer.options.max_h2_streams = 1;
    let (mut session, _) = connector.get_http_session(&peer).await?;
    let Some(path) = path else { return Ok(None) };
    let mut request = RequestHeader::build("GET", path.as_bytes(), Some(2))?;
    request.insert_header("Host", &member.host)?;
    request.insert_header("User-Agent", "tiergate-health")?;
    session.write_request_header(Box::new(request)).await?;
    session.finish_request_body().await?;
    session.read_response_header().await?;
    let status = session.response_header().map(|head| head.status);
    session.shutdown().await;
    status.map(Some).ok_or_else(|| Error::explain(ErrorType::ReadError, "no status"))
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
            let (state, connector, tasks) = (&member.state, &connector, &tasks);
            checks.push(async move {
                let asked = timeout(limit, async {
                    let _place = tasks.acquire().await;
                    ask(member, true, connector).await
                });
                let healthy = if state.health.path.is_some() { "is healthy" } else { "connects" };
                let outcome = match asked.await {
                    _ if let Some(Trouble::Refused(address, why)) = state.trouble() => {
                        Err(format!("its name leads to {address}, {why}"))
                    }
                    Ok(Some(outcome)) => outcome.map(|()| healthy.to_owned()),
                    Ok(None) => Err("its name can't be looked up, or no descriptor is left".to_owned()),
                    Err(_) => Err("there was no time to ask it".to_owned()),
                };
                (format!("tenant {} upstream {}", site.tenant.id, state.upstream), outcome)
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
    let tasks = Semaphore::new(TASKS_MAX);
    let look_ups = new.into_iter().map(async |(_, site, member)| {
        let _place = tasks.acquire().await;
        resolve(&member.state, &site.tenant.id).await;
    });
    // The rest is given up with these, and due again at once.
    let _ = timeout(NEW_NAMES_TIME_MAX, join_all(look_ups)).await;
}

#[cfg(test)]
mod tests;
