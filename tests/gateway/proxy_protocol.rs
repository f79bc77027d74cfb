//! The PROXY protocol in front of a connection: trusted balancers name the client, and nobody else is heard.

use std::net::IpAddr;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, Message};
use crate::rig::listeners::{HTTP_1, HTTP_2, LISTENER, ListenerTls};
use crate::rig::site::{Site, SiteBuilder};
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::tenants::Tenant;
use crate::rig::tunnels::{Greeting, Tunnel};
use crate::support::process::own_ip;
use crate::support::time::{SOON, until};
use crate::support::wire::{Request, Wire};

pub(crate) const CASES: &[Case] = cases![
    both_versions_name_the_client_or_else_the_balancer,
    a_malformed_or_missing_header_ends_the_connection,
    nobody_but_a_trusted_balancer_may_write_one,
    it_stands_before_tls_for_both_protocols,
    connections_are_counted_for_the_client_and_not_for_its_balancer,
];

/// A site behind balancers at 127.0.0.1.
fn balanced(stage: &Stage) -> SiteBuilder<'_> {
    let site = Site::of(stage).set("listen.trusted_proxies", vec!["127.0.0.1"]);
    site.set("listen.proxy_protocol", vec!["gateway"])
}

const V1: &[u8] = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n";

fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", [command, family].as_slice(), &length, rest].concat()
}

/// From 203.0.113.8, with an extension.
fn v2_of_ipv4() -> Vec<u8> {
    let addresses = [203, 0, 113, 8, 192, 0, 2, 1, 0x12, 0x67, 0x01, 0xbb];
    v2(0x21, 0x11, &[&addresses[..], &[4, 0, 2, 0, 0]].concat())
}

/// From `2001:db8::9`.
fn v2_of_ipv6() -> Vec<u8> {
    let client = "2001:db8::9".parse::<std::net::Ipv6Addr>().unwrap().octets();
    v2(0x21, 0x21, &[&client[..], &client, &[0x12, 0x67, 0x01, 0xbb]].concat())
}

/// Asks behind a header; gives the clients that the upstream was told of.
fn told_behind(site: &Site, header: &[u8]) -> Vec<String> {
    let mut wire = site.gateway.connect();
    let mut before = header.to_vec();
    let addresses = (0..2).map(|_| {
        let path = public_path();
        let request = Request::get(ACME, &path).with("X-Forwarded-For", "198.51.100.1");
        wire.send(&[std::mem::take(&mut before), request.bytes()].concat());
        assert_eq!(wire.answer().status, 200);
        site.upstream.only(&path).header("x-forwarded-for").unwrap().to_owned()
    });
    addresses.collect()
}

// threat: Forged PROXY headers
fn both_versions_name_the_client_or_else_the_balancer(stage: &Stage) {
    let site = balanced(stage).start();
    for (header, client) in [
        (V1.to_vec(), "203.0.113.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n".to_vec(), "2001:db8::7"),
        (v2_of_ipv4(), "203.0.113.8"),
        (v2_of_ipv6(), "2001:db8::9"),
    ] {
        // The client is not trusted, so what it says of others does not count.
        assert_eq!(told_behind(&site, &header), [client; 2]);
    }
    // The balancer speaks for itself.
    for header in [b"PROXY UNKNOWN\r\n".to_vec(), v2(0x20, 0, b""), v2(0x20, 0x11, &[9; 12])] {
        assert_eq!(told_behind(&site, &header), ["198.51.100.1, 127.0.0.1"; 2]);
    }
}

/// Sends bytes and a request behind them, which are to end the connection without an answer.
#[track_caller]
fn is_closed(site: &Site, from: IpAddr, bytes: &[u8], path: &str) {
    let mut wire = Wire::open_from(from, site.gateway.address);
    let _ = wire.write(&[bytes, &Request::get(ACME, path).bytes()].concat());
    assert_eq!(wire.rest(), b"", "{}", bytes.escape_ascii());
}

fn turned_away(site: &Site) -> f64 {
    let samples = site.gateway.service.samples();
    let series = "tiergate_connections_turned_away_total";
    samples.get(&format!("{series}{{listener=\"gateway\",reason=\"proxy_protocol\"}}"))
}

/// The same, when the connection was counted that showed that the gateway listens.
fn turned_away_at_first(site: &Site) -> f64 {
    until("the first connection is counted", SOON, || Some(turned_away(site)).filter(|count| *count >= 1.0))
}

// threat: Forged PROXY headers
fn a_malformed_or_missing_header_ends_the_connection(stage: &Stage) {
    let site = balanced(stage).start();
    let malformed =
        [b"".to_vec(), b"PROXY TCP4 203.0.113.7 192.0.2.1 4711\r\n".to_vec(), v2(0x21, 0x11, &[1; 11])];
    let (before, path) = (turned_away_at_first(&site), public_path());
    for bytes in &malformed {
        is_closed(&site, [127, 0, 0, 1].into(), bytes, &path);
    }
    // A second header is no request.
    let mut wire = site.gateway.connect();
    wire.send(&[V1, V1, b"\r\n"].concat());
    assert_eq!(wire.answer().status, 400);
    assert_eq!(turned_away(&site) - before, malformed.len() as f64);
    assert_eq!(site.upstream.count_at(&path), 0);
}

// threat: Forged PROXY headers
fn nobody_but_a_trusted_balancer_may_write_one(stage: &Stage) {
    let (site, path) = (balanced(stage).start(), public_path());
    let before = turned_away_at_first(&site);
    for header in [V1.to_vec(), v2_of_ipv4(), v2(0x20, 0, b""), Vec::new()] {
        is_closed(&site, own_ip(), &header, &path);
    }
    assert_eq!(turned_away(&site) - before, 4.0);
    assert_eq!(site.upstream.count_at(&path), 0);
    // A listener that does not ask for headers believes none, whoever writes it.
    let site = Site::of(stage).set("listen.trusted_proxies", vec!["127.0.0.1"]).start();
    let mut wire = site.gateway.connect();
    wire.send(&[V1, &Request::get(ACME, &path).bytes()].concat());
    assert_eq!(wire.answer().status, 400);
    assert_eq!(site.upstream.count_at(&path), 0);
}

// threat: Forged PROXY headers
fn it_stands_before_tls_for_both_protocols(stage: &Stage) {
    let site = balanced(stage);
    let tenant = Tenant::new("t", LISTENER, site.upstream().address).public();
    let site = site.only(vec![tenant]).tls(ListenerTls::new()).start();
    let tunnel = |protocols, header: &[u8]| {
        let greeting = Greeting::new(&site.tls().authority, LISTENER, protocols).after(header);
        Tunnel::to(site.tls().address, greeting)
    };
    let path = public_path();
    let http_1 = tunnel(HTTP_1, V1);
    assert_eq!(Request::get(LISTENER, &path).ask(http_1.address).status, 200);
    assert_eq!(site.upstream.only(&path).header("x-forwarded-for"), Some("203.0.113.7"));
    let path = public_path();
    let http_2 = tunnel(HTTP_2, &v2_of_ipv6());
    let request = Message::request(http::Method::GET, LISTENER, &path);
    assert_eq!(h2c::ask(http_2.address, &request).unwrap().status, 200);
    assert_eq!(site.upstream.only(&path).header("x-forwarded-for"), Some("2001:db8::9"));
    let greeting = Greeting::new(&site.tls().authority, LISTENER, HTTP_1);
    assert!(greeting.meet(site.tls().address).is_err(), "no handshake without a header");
}

// threat: Forged PROXY headers
// threat: All connections or descriptors taken
fn connections_are_counted_for_the_client_and_not_for_its_balancer(stage: &Stage) {
    let site = balanced(stage).set("listen.max_connections_per_network", 2).start();
    let serves = |header: &[u8]| {
        let mut wire = site.gateway.connect();
        let _ = wire.write(&[header, &Request::get(ACME, &public_path()).bytes()].concat());
        wire.try_answer().is_ok_and(|answer| answer.status == 200).then_some(wire)
    };
    let held = [serves(V1).unwrap(), serves(V1).unwrap()];
    assert!(serves(V1).is_none());
    let others = [serves(&v2_of_ipv4()).unwrap(), serves(&v2_of_ipv4()).unwrap()];
    let balancers: Vec<Wire> = (0..4).map(|_| serves(&v2(0x20, 0, b"")).unwrap()).collect();
    drop((held, others, balancers));
    until("there is room", SOON, || serves(V1));
}
