//! Looks after upstreams in the background: where their names lead, and whether they answer.
//!
//! No request ever waits for a name or a check.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::upstreams::peer::HttpPeer;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::gateway::failure::is_out_of_descriptors;
use crate::gateway::library::faults::is_without_descriptors;
use crate::gateway::site::Site;
use crate::gateway::table::{LiveTable, Table};
use crate::gateway::upstreams::Member;
use crate::gateway::upstreams::state::{UpstreamState, micros};
use crate::ports::clock::Clock;

/// How often it is looked what is due.
const TICK: Duration = Duration::from_millis(250);

/// How often the name of an upstream is looked up.
const RESOLVE_EVERY: Duration = Duration::from_secs(10);

/// How long a look-up may take.
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(5);

/// How many look-ups and checks are under way at once.
pub(crate) const TASKS_MAX: usize = 64;

/// How many addresses of one name are used.
const ADDRESSES_MAX: usize = 16;

/// How long a reload waits for the names of new upstreams.
const NEW_NAMES_TIME_MAX: Duration = Duration::from_secs(3);

/// The background task.
pub(crate) struct Watch {
    table: Arc<LiveTable>,
    clock: Arc<dyn Clock>,
    tasks: Arc<Semaphore>,
}

/// What a check needs, detached from the table.
struct Check {
    state: Arc<UpstreamState>,
    tenant: Arc<str>,
    peer: HttpPeer,
    host: http::HeaderValue,
    clock: Arc<dyn Clock>,
}

type Flag = fn(&UpstreamState) -> &AtomicBool;

/// A look-up or check that is under way until this is dropped, even by a panic.
struct UnderWay {
    state: Arc<UpstreamState>,
    flag: Flag,
    _place: OwnedSemaphorePermit,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        (self.flag)(&self.state).store(false, Ordering::Release);
    }
}

impl Watch {
    /// Looks after the upstreams of whatever table is in force.
    pub(crate) fn new(table: Arc<LiveTable>, clock: Arc<dyn Clock>) -> Self {
        Self { table, clock, tasks: Arc::new(Semaphore::new(TASKS_MAX)) }
    }

    /// Looks after them for as long as it is polled.
    pub(crate) async fn run(self: Arc<Self>) {
        let connector = Arc::new(Connector::new(None));
        loop {
            self.tick(&connector);
            tokio::time::sleep(TICK).await;
        }
    }

    /// Begins whatever is due.
    fn tick(&self, connector: &Arc<Connector>) {
        let now = self.clock.monotonic_micros();
        let table = self.table.load_full();
        for site in table.sites() {
            let is_watched = site.is_watched();
            for member in site.members() {
                if member.state.is_named() && is_due(&member.state.next_resolution, now, RESOLVE_EVERY) {
                    self.resolve(site, member);
                }
                let every = member.state.health.interval.filter(|_| is_watched);
                if every.is_some_and(|every| is_due(&member.state.next_check, now, every)) {
                    self.check(site, member, connector);
                }
            }
        }
    }

    /// Looks a name up, unless that is being done or too much else is.
    fn resolve(&self, site: &Site, member: &Member) {
        let (state, tenant) = (Arc::clone(&member.state), Arc::clone(&site.tenant.id));
        let Some(under_way) = self.begin(&state, |state| &state.is_in_resolution) else { return };
        tokio::spawn(async move {
            resolve(&state, &tenant).await;
            drop(under_way);
        });
    }

    /// Checks an upstream, unless that is being done or too much else is.
    fn check(&self, site: &Site, member: &Member, connector: &Arc<Connector>) {
        let Some(under_way) = self.begin(&member.state, |state| &state.is_in_check) else { return };
        let check = Check {
            state: Arc::clone(&member.state),
            tenant: Arc::clone(&site.tenant.id),
            peer: member.template.clone(),
            host: member.host.clone(),
            clock: Arc::clone(&self.clock),
        };
        let connector = Arc::clone(connector);
        tokio::spawn(async move {
            check.run(&connector).await;
            drop(under_way);
        });
    }

    /// A place for a task that is not under way yet. Without one it is tried again with the next tick.
    fn begin(&self, state: &Arc<UpstreamState>, flag: Flag) -> Option<UnderWay> {
        let place = Arc::clone(&self.tasks).try_acquire_owned().ok()?;
        let is_free = !flag(state).swap(true, Ordering::Acquire);
        is_free.then(|| UnderWay { state: Arc::clone(state), flag, _place: place })
    }
}

impl Check {
    async fn run(&self, connector: &Connector) {
        let addresses = self.state.addresses.load_full();
        if addresses.is_empty() {
            return;
        }
        let mut is_healthy = false;
        // One address that answers is enough.
        for address in addresses.iter().take(ADDRESSES_MAX) {
            let answered = timeout(self.state.health.timeout, async {
                match &self.state.health.path {
                    Some(path) => self.asks(*address, path, connector).await,
                    None => match TcpStream::connect(*address).await {
                        Err(error) if is_out_of_descriptors(&error) => None,
                        connected => Some(connected.is_ok()),
                    },
                }
            });
            // A check that can't be made for lack of descriptors says nothing about the upstream.
            let Some(answers) = answered.await.unwrap_or(Some(false)) else { return };
            is_healthy = answers;
            if is_healthy {
                break;
            }
        }
        if self.state.checked(is_healthy, self.clock.monotonic_micros()) {
            let (tenant, upstream) = (&*self.tenant, &self.state.upstream);
            if is_healthy {
                tracing::info!(tenant, %upstream, "answers its checks again");
            } else {
                tracing::warn!(tenant, %upstream, "fails its checks: it gets no requests while another can");
            }
        }
    }

    /// True if a GET is answered with success; `None` if there is no descriptor for it.
    async fn asks(&self, address: SocketAddr, path: &str, connector: &Connector) -> Option<bool> {
        let mut peer = self.peer.clone();
        peer._address = address.into();
        let asked = async {
            let (mut session, _) = connector.get_http_session(&peer).await?;
            let mut request = RequestHeader::build("GET", path.as_bytes(), Some(2))?;
            request.insert_header("Host", &self.host)?;
            request.insert_header("User-Agent", "tiergate-health")?;
            session.write_request_header(Box::new(request)).await?;
            session.finish_request_body().await?;
            session.read_response_header().await?;
            let status = session.response_header().map(|head| head.status);
            session.shutdown().await;
            Ok::<_, Box<pingora::Error>>(status)
        };
        match asked.await {
            Err(error) if is_without_descriptors(&error) => None,
            Ok(Some(status)) => Some(status.is_success() || status.is_redirection()),
            Ok(None) | Err(_) => Some(false),
        }
    }
}

async fn resolve(state: &UpstreamState, tenant: &str) {
    let upstream = &state.upstream;
    let looked_up = timeout(RESOLVE_TIME_MAX, lookup_host((&*upstream.host, upstream.port))).await;
    let found: Vec<SocketAddr> = match looked_up {
        Ok(Ok(addresses)) => addresses.take(ADDRESSES_MAX).collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    // An address that worked is kept while the name can't be looked up.
    if found.is_empty() {
        tracing::warn!(tenant, %upstream, "its name can't be looked up");
    } else if **state.addresses.load() != found {
        state.addresses.store(Arc::new(found));
    }
}

/// Looks up the names of upstreams that are new in a table, so that it can be put in force without a request that has
/// nowhere to go. Waits a bounded time; what is not known then is looked up in the background.
pub(crate) async fn resolve_new_names(table: &Table) {
    let tasks = Arc::new(Semaphore::new(TASKS_MAX));
    let mut lookups = JoinSet::new();
    for site in table.sites() {
        for member in site.members().filter(|member| member.state.is_named() && !member.state.has_address()) {
            let (state, tenant) = (Arc::clone(&member.state), Arc::clone(&site.tenant.id));
            let tasks = Arc::clone(&tasks);
            lookups.spawn(async move {
                let _place = tasks.acquire().await;
                resolve(&state, &tenant).await;
            });
        }
    }
    let all = async { while lookups.join_next().await.is_some() {} };
    // The rest is given up with the set, and due again at once.
    let _ = timeout(NEW_NAMES_TIME_MAX, all).await;
}

/// Whether something is to be done now; then it is due again later.
fn is_due(next: &AtomicU64, now: u64, every: Duration) -> bool {
    if now < next.load(Ordering::Relaxed) {
        return false;
    }
    next.store(now.saturating_add(micros(every)), Ordering::Relaxed);
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Watch;
    use crate::domain::fixture;
    use crate::domain::upstream::Upstream;
    use crate::gateway::table::{LiveTable, Table};
    use crate::gateway::upstreams::state::UpstreamState;
    use crate::ports::simulated::SimulatedClock;

    #[tokio::test]
    async fn a_check_that_panics_leaves_its_place_to_the_next_one() {
        let table = Arc::new(LiveTable::from_pointee(Table::default()));
        let watch = Watch::new(table, Arc::new(SimulatedClock::new(0)));
        let rules = fixture::tenant().proxy;
        let upstream = Upstream::parse("127.0.0.1:1").unwrap();
        let state = Arc::new(UpstreamState::new(upstream, rules.health, rules.upstream_limits));
        let begin = || watch.begin(&state, |state| &state.is_in_check);
        let under_way = begin().unwrap();
        assert!(begin().is_none(), "one at a time");
        let check = async move {
            let _under_way = under_way;
            panic!("a check")
        };
        tokio::spawn(check).await.unwrap_err();
        assert!(begin().is_some());
    }
}
