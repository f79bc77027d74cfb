//! One client that takes all it can get: other clients, tenants and agents are served, and so are those who look at the
//! service.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::{fs, process::Command};

use socket2::{Domain, Socket, Type};

use crate::rig::case::{Case, cases};
use crate::rig::frames::{END_HEADERS, END_STREAM, Frames, HEADERS, block, frame};
use crate::rig::stage::{ACME, Stage, agents_path, public_path};
use crate::rig::{site::Site, tenants::Tenant};
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    clients_whose_streams_hang_starve_nobody,
    a_network_that_opens_all_connections_it_can_and_says_nothing_starves_no_other,
];

/// A tenant whose upstream takes connections and never says a word.
const HUNG: &str = "hung.test";

/// How many descriptors the process may have.
const DESCRIPTORS: &str = "ulimit -n 4096";

/// The connections and streams of the greedy client.
const CONNECTIONS: usize = 30;
const STREAMS: u32 = 100;

/// How often the others ask.
const ROUNDS: usize = 8;

/// Where the others come from.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// A site with few descriptors, and the upstream that hangs. It never takes a connection out of the kernel's hands.
fn besieged(stage: &Stage) -> (Site, Socket) {
    let hung = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    hung.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    hung.listen(4_096).unwrap();
    let address = hung.local_addr().unwrap().as_socket().unwrap();
    let site = Site::of(stage).unlimited().agent(4).also(|_| Tenant::new("hung", HUNG, address).public());
    (site.under(DESCRIPTORS).start(), hung)
}

/// Another client's requests, public and an agent's, each on a new connection, and those of whoever looks after the service.
#[track_caller]
fn others_are_served(site: &Site) {
    for round in 0..ROUNDS {
        let by_key = Request::get(ACME, &agents_path()).key(site.key());
        for request in [Request::get(ACME, &public_path()), by_key] {
            let answer = request.ask_on(&mut Wire::open_from(ELSEWHERE, site.gateway.address));
            assert_eq!(answer.status, 200, "round {round}: {}", answer.text());
        }
        assert_eq!(site.gateway.service.get("/livez").status, 200, "round {round}");
        site.gateway.service.await_ready();
        assert!(site.gateway.service.metrics().contains("tiergate_"), "round {round}");
    }
}

/// Connections of HTTP/2 with as many requests to the tenant that hangs as one may have.
fn hanging(site: &Site, key: Option<&str>) -> Vec<Frames> {
    let (public, agents) = (public_path(), agents_path());
    let path = if key.is_some() { &agents } else { &public };
    let mut fields = vec![(":method", "GET"), (":scheme", "http"), (":authority", HUNG), (":path", path)];
    fields.extend(key.map(|key| ("x-api-key", key)));
    let headers = block(&fields);
    let requests: Vec<u8> =
        (0..STREAMS).flat_map(|at| frame(HEADERS, END_HEADERS | END_STREAM, 2 * at + 1, &headers)).collect();
    let open = || {
        let mut frames = Frames::open(site.gateway.address);
        frames.write(&requests);
        frames
    };
    (0..CONNECTIONS).map(|_| open()).collect()
}

/// Lets this process have so many descriptors.
fn may_open(descriptors: u64) {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    if line.split_whitespace().next().unwrap().parse().is_ok_and(|soft: u64| soft < descriptors) {
        let (pid, limit) = (std::process::id().to_string(), format!("--nofile={descriptors}:"));
        let raised = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
        assert!(raised.success(), "this test needs {descriptors} descriptors; the limits are{line}");
    }
}

/// Waits until the greedy client has all that it may have by this limit.
#[track_caller]
fn until_refused(site: &Site, limit: &str) {
    let limit = format!("limit=\"{limit}\"");
    until("it is refused", SOON, || {
        let metrics = site.gateway.service.metrics();
        let refused = |line: &str| line.starts_with("tiergate_overload_total") && line.contains(&limit);
        metrics.lines().any(refused).then_some(())
    });
}

/// A stranger and an agent of tier 4 take all that they can get, side by side.
fn clients_whose_streams_hang_starve_nobody(stage: &Stage) {
    let (site, _hung) = besieged(stage);
    let key = stage.world().agent(4).generate(&site.gateway.service);
    let _held = [hanging(&site, None), hanging(&site, Some(&key))];
    until_refused(&site, "share");
    until_refused(&site, "agent");
    others_are_served(&site);
}

fn a_network_that_opens_all_connections_it_can_and_says_nothing_starves_no_other(stage: &Stage) {
    let (site, _hung) = besieged(stage);
    may_open(4_200 + 1_000);
    // As many as the process may have descriptors. They may be idle for longer than the others wait.
    let _held: Vec<Wire> = (0..4_200).map(|_| site.gateway.connect()).collect();
    others_are_served(&site);
}
