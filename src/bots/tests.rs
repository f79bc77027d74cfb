//! Which signatures prove a domain, and when its directory is read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{net::SocketAddr, sync::Arc};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::{Bots, Directories, DirectoryState, MISSED_MICROS, READS_MAX, parse};
use crate::domain::{BotDomains, BotSignature, ClientNet, HostPattern, Reach};
use crate::ports::simulated::SimulatedClock;
use crate::telemetry::Metrics;

const CLIENT: ClientNet = ClientNet::NOBODY;

/// Bots of domains at this server, and what they go by.
struct Bench {
    bots: Bots,
    clock: Arc<SimulatedClock>,
    metrics: Metrics,
    server: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Bench {
    /// The server closes each connection: every read fails.
    async fn new() -> Self {
        pingora::tls::install_default_crypto_provider();
        let (server, connections) = server().await;
        let (clock, metrics) = (Arc::new(SimulatedClock::new(1_700_000_000)), Metrics::new().unwrap());
        let private = ["a.test".into(), "b.test".into()].into_iter().chain([domain(server)]);
        let many = (0..20).map(|number| format!("n{number}.localhost:{}", server.port()).into());
        let public = ["*.below.localhost", "listed.localhost"].map(|text| HostPattern::parse(text).unwrap());
        let domains = BotDomains { public: public.into(), private: private.chain(many).collect() };
        let bots = Bots::new(domains, Handle::current(), clock.clone(), metrics.clone()).unwrap();
        Self { bots, clock, metrics, server, connections }
    }

    /// A domain has these keys now.
    fn knows(&self, domain: &str, keys: &[&Ed25519KeyPair]) {
        let keys = keys.iter().map(|key| json!({"kty": "OKP", "crv": "Ed25519", "x": text(key)}));
        self.publishes(domain, &json!({"keys": keys.collect::<Vec<_>>()}));
    }

    fn publishes(&self, domain: &str, set: &serde_json::Value) {
        let keys = parse(set.to_string().as_bytes()).unwrap();
        let known = DirectoryState::default();
        known.begun_micros.store(1, Ordering::SeqCst);
        known.keys.store(Some(Arc::new((keys, super::KEYS_MICROS_MAX))));
        self.bots.known.insert(domain.into(), Arc::new(known));
    }

    fn proves(&self, signed: &BotSignature) -> bool {
        let domain = self.bots.domain(std::slice::from_ref(signed), CLIENT);
        assert!(domain.is_none() || domain.as_ref() == Some(&signed.domain));
        domain.is_some()
    }

    /// Waits until all reads are over: how many connections there were.
    async fn connections(&self) -> usize {
        drop(self.bots.reads.acquire_many(u32::try_from(READS_MAX).unwrap()).await.unwrap());
        self.connections.load(Ordering::SeqCst)
    }

    fn reads(&self, result: &str) -> u64 {
        self.metrics.bot_directory_reads.with_label_values(&[result]).get()
    }
}

async fn server() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    (address, connections)
}

fn domain(server: SocketAddr) -> Box<str> {
    format!("localhost:{}", server.port()).into()
}

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn text(key: &Ed25519KeyPair) -> String {
    URL_SAFE_NO_PAD.encode(key.public_key())
}

fn id(key: &Ed25519KeyPair) -> Box<str> {
    let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": text(key)}]}).to_string();
    parse(keys.as_bytes()).unwrap().into_keys().next().unwrap()
}

fn signed(domain: &str, key: &Ed25519KeyPair) -> BotSignature {
    let base = b"what is signed".to_vec();
    BotSignature { domain: domain.into(), key_id: id(key), signature: key.sign(&base).as_ref().into(), base }
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[tokio::test]
async fn a_signature_proves_a_domain_by_a_key_that_this_domain_publishes() {
    let bench = Bench::new().await;
    let (one, other) = (key(1), key(2));
    bench.knows("a.test", &[&one]);
    bench.knows("b.test", &[&other]);
    assert!(bench.proves(&signed("a.test", &one)) && bench.proves(&signed("b.test", &other)));
    // A key is its own domain's, and not that of the one that is named.
    assert!(!bench.proves(&signed("b.test", &one)) && !bench.proves(&signed("a.test", &other)));
    assert!(!bench.proves(&BotSignature { key_id: id(&other), ..signed("b.test", &one) }));
    assert!(!bench.proves(&BotSignature { base: b"another".to_vec(), ..signed("a.test", &one) }));
    assert!(!bench.proves(&BotSignature { signature: vec![0; 64], ..signed("a.test", &one) }));
    assert!(!bench.proves(&BotSignature { signature: Vec::new(), ..signed("a.test", &one) }));
    assert!(!bench.proves(&signed("unlisted.test", &one)));
    // A later signature counts where the first is none.
    let several = [signed("b.test", &one), signed("a.test", &one), signed("b.test", &other)];
    assert_eq!(bench.bots.domain(&several, CLIENT).as_deref(), Some("a.test"));
    assert_eq!(bench.bots.domain(&[], CLIENT), None);
    let counted = ["proven", "unknown", "refused"]
        .map(|result| bench.metrics.bot_proofs.with_label_values(&[result]).get());
    assert_eq!(counted, [3, 2, 6]);
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[tokio::test]
async fn two_signatures_of_a_request_are_checked_and_sixty_requests_with_wrong_ones_of_a_network() {
    let bench = Bench::new().await;
    let (one, other) = (key(1), key(2));
    bench.knows("a.test", &[&one]);
    let right = || signed("a.test", &one);
    let wrong = || BotSignature { base: b"another".to_vec(), ..right() };
    let unknown = || signed("unlisted.test", &other);
    let proves = |several: &[BotSignature], client| bench.bots.domain(several, client).is_some();
    assert!(proves(&[wrong(), right()], CLIENT) && proves(&[unknown(), right()], CLIENT));
    assert!(!proves(&[wrong(), wrong(), right()], CLIENT));
    for _ in 1..60 {
        assert!(proves(&[right()], CLIENT) && !proves(&[wrong()], CLIENT));
    }
    assert!(!proves(&[right()], CLIENT), "the network is checked no more");
    assert!(proves(&[right()], ClientNet::of("192.0.2.1".parse().unwrap())));
    bench.clock.advance_secs(61);
    assert!(proves(&[right()], CLIENT));
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[tokio::test]
async fn a_key_counts_from_its_beginning_to_its_end() {
    let bench = Bench::new().await;
    let (key, now) = (key(1), 1_700_000_000_u64);
    for (times, counts) in [
        (json!({}), true),
        (json!({"nbf": now, "exp": now + 1}), true),
        (json!({"nbf": now + 1}), false),
        (json!({"exp": now}), false),
    ] {
        let mut jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": text(&key)});
        jwk.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        bench.publishes("a.test", &json!({"keys": [jwk]}));
        assert_eq!(bench.proves(&signed("a.test", &key)), counts, "{times}");
    }
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[tokio::test]
async fn keys_count_for_an_hour_and_a_directory_that_fails_takes_none_away() {
    let bench = Bench::new().await;
    let (key, domain) = (key(1), domain(bench.server));
    bench.knows(&domain, &[&key]);
    assert!(bench.proves(&signed(&domain, &key)));
    bench.clock.advance_secs(599);
    assert!(bench.proves(&signed(&domain, &key)));
    assert_eq!(bench.connections().await, 0, "ten minutes are not over");
    for (secs, connections) in [(2, 1), (599, 1), (1, 2), (2_398, 3)] {
        bench.clock.advance_secs(secs);
        assert!(bench.proves(&signed(&domain, &key)));
        assert_eq!(bench.connections().await, connections, "{secs}");
    }
    assert_eq!(bench.reads("failed"), 3);
    bench.clock.advance_secs(1);
    assert!(!bench.proves(&signed(&domain, &key)));
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[tokio::test]
async fn a_directory_is_read_once_for_however_many_and_a_failure_is_not_repeated_for_a_minute() {
    let bench = Bench::new().await;
    let (key, domain) = (key(1), domain(bench.server));
    bench.clock.advance_secs(1);
    let ask = || (0..50).for_each(|_| assert!(!bench.proves(&signed(&domain, &key))));
    ask();
    assert_eq!(bench.connections().await, 1);
    bench.clock.advance_micros(MISSED_MICROS - 1);
    ask();
    assert_eq!((bench.connections().await, bench.reads("failed")), (1, 1));
    bench.clock.advance_micros(1);
    ask();
    assert_eq!((bench.connections().await, bench.reads("failed")), (2, 2));
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[tokio::test]
async fn a_network_causes_ten_reads_a_minute_and_no_more_than_there_are_places() {
    let bench = Bench::new().await;
    let named = |number: usize| signed(&format!("n{number}.localhost:{}", bench.server.port()), &key(1));
    let other = ClientNet::of("192.0.2.1".parse().unwrap());
    for number in 0..15 {
        assert!(!bench.proves(&named(number)));
        bench.connections().await;
    }
    assert_eq!((bench.reads("failed"), bench.reads("full")), (10, 5));
    assert_eq!(bench.bots.domain(&[named(15)], other), None);
    bench.connections().await;
    assert_eq!((bench.reads("failed"), bench.reads("full")), (11, 5));
    let places = bench.bots.reads.acquire_many(u32::try_from(READS_MAX).unwrap()).await.unwrap();
    for _ in 0..10 {
        assert_eq!(bench.bots.domain(&[named(16)], other), None);
    }
    drop(places);
    bench.connections().await;
    assert_eq!((bench.reads("failed"), bench.reads("full")), (11, 15));
    assert_eq!(bench.bots.domain(&[named(16)], other), None);
    bench.connections().await;
    assert_eq!((bench.reads("failed"), bench.reads("full")), (12, 15), "nothing was spent without a place");
}

#[tokio::test]
async fn names_below_a_star_take_no_place_of_a_listed_domains_read() {
    let bench = Bench::new().await;
    let ask = |domain: &str| assert!(!bench.proves(&signed(domain, &key(1))));
    let _places = bench.bots.reads_below.acquire_many(u32::try_from(READS_MAX).unwrap()).await.unwrap();
    ask("a.below.localhost");
    assert_eq!((bench.reads("failed"), bench.reads("full")), (0, 1));
    ask("listed.localhost");
    bench.connections().await;
    assert_eq!((bench.reads("failed"), bench.reads("full")), (1, 1));
}

// threat: Somebody poses as a bot, or has its directory be an inner address
#[tokio::test]
async fn a_name_that_leads_to_a_private_address_is_not_connected_to() {
    pingora::tls::install_default_crypto_provider();
    let (server, connections) = server().await;
    let directories = Directories::new().unwrap();
    let why = directories.read(&domain(server), Reach::Public).await.unwrap_err();
    assert!(format!("{why:?}").contains("it has no public address"), "{why:?}");
    assert_eq!(connections.load(Ordering::SeqCst), 0);
    directories.read(&domain(server), Reach::Anywhere).await.unwrap_err();
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn a_key_set_gives_its_keys_for_ed25519_by_their_thumbprints() {
    let x = "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs";
    let set = json!({"keys": [
        {"kty": "RSA", "n": "AQ", "e": "AQAB", "kid": "rsa"},
        {"kty": "OKP", "crv": "X25519", "x": x},
        {"kty": "EC", "crv": "Ed25519", "x": x},
        {"kty": "OKP", "crv": "Ed25519", "x": "AQ"},
        {"kty": "OKP", "crv": "Ed25519", "x": format!("{x}=")},
        {"kty": "OKP", "crv": "Ed25519"},
        {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": "another's", "use": "sig", "nbf": 1},
    ]});
    let keys = parse(set.to_string().as_bytes()).unwrap();
    // RFC 8037, appendix A.3, of the key of RFC 9421, section B.1.4.
    let expected = ("poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U", URL_SAFE_NO_PAD.decode(x).unwrap());
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[expected.0], (<[u8; 32]>::try_from(expected.1).unwrap(), 1..u64::MAX));
    let many = |count: usize| json!({"keys": vec![json!({"kty": "RSA"}); count]}).to_string();
    assert!(parse(many(64).as_bytes()).is_some() && parse(many(65).as_bytes()).is_none());
    for text in ["", "{}", "[]", r#"{"keys":{}}"#, r#"{"keys":[1]}"#, r#"{"keys":[{}]}"#, r#"{"keys":[]}x"#] {
        assert!(parse(text.as_bytes()).is_none(), "{text}");
    }
}
