//! Assertions as an upstream reads them: by a verifier that knows the published keys alone.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use alloy::primitives::{Address, U256, address};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::KeyPair;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};

use super::{Facts, Issuer, KEPT_MAX, Subject};
use crate::domain::{AgentId, Tier};
use crate::ports::{Entropy, NoEntropy, simulated::SimulatedClock};
use crate::tls::{FileLoader, LoadedFiles, SigningKeys};

const NOW: u64 = 1_800_000_000;
const NAME: &str = "https://gate.example";
const OWNER: Address = address!("70997970C51812dc3A010C7d01b50e0d17dc79C8");

/// Randomness that may fail.
#[derive(Default)]
struct Bytes {
    next: parking_lot::Mutex<u8>,
    is_empty: AtomicBool,
}

impl Entropy for Bytes {
    fn key_bytes(&self) -> Result<[u8; 32], NoEntropy> {
        let mut next = self.next.lock();
        *next = next.wrapping_add(1);
        if self.is_empty.load(Ordering::SeqCst) { Err(NoEntropy) } else { Ok([*next; 32]) }
    }
}

impl Issuer {
    /// An assertion for a tenant that tests need.
    pub(crate) fn sample(&self) -> Arc<str> {
        self.about(Subject { agent: AgentId::new(U256::ZERO), owner: OWNER, tier: Tier::Gold }, &"a".into())
            .unwrap()
    }
}

struct Bench {
    issuer: Issuer,
    clock: Arc<SimulatedClock>,
    bytes: Arc<Bytes>,
}

impl Bench {
    fn new() -> Self {
        let (clock, bytes) = (Arc::new(SimulatedClock::new(NOW)), Arc::new(Bytes::default()));
        let registry = address!("5FbDB2315678afecb367f032d93F642f64180aa3");
        let (chain_id, entropy) = (8004, Arc::clone(&bytes) as Arc<dyn Entropy>);
        let facts = Facts { chain_id, registry, clock: clock.clone(), entropy };
        Self { issuer: Issuer::new(NAME, keys(2), facts), clock, bytes }
    }

    /// About the agent 4 of tier 3, for acme.
    fn text(&self) -> Arc<str> {
        self.about(4, OWNER, Tier::Gold, "acme").unwrap()
    }

    fn about(&self, agent: u64, owner: Address, tier: Tier, tenant: &str) -> Result<Arc<str>, NoEntropy> {
        let agent = AgentId::new(U256::from(agent));
        self.issuer.about(Subject { agent, owner, tier }, &tenant.into())
    }
}

/// So many new keys.
fn keys(count: usize) -> Arc<SigningKeys> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.pem");
    let pems: String = (0..count).map(|_| KeyPair::generate().unwrap().serialize_pem()).collect();
    std::fs::write(&path, pems).unwrap();
    FileLoader::new(&LoadedFiles::default()).signing_keys(&path).ok().unwrap()
}

/// Header and claims, if a published key has signed them.
fn read(text: &str, key_set: &str) -> Option<[Value; 2]> {
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    let (message, signature) = text.rsplit_once('.').unwrap();
    let [header, claims] = message.split_once('.').map(|(one, two)| [one, two]).unwrap().map(decode);
    let header: Value = serde_json::from_slice(&header).unwrap();
    let key_set: Value = serde_json::from_str(key_set).unwrap();
    let key = key_set["keys"].as_array().unwrap().iter().find(|key| key["kid"] == header["kid"])?;
    let [x, y] = ["x", "y"].map(|name| decode(key[name].as_str().unwrap()));
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, [&[4], &*x, &*y].concat());
    key.verify(message.as_bytes(), &decode(signature)).ok()?;
    Some([header, serde_json::from_slice(&claims).unwrap()])
}

#[test]
fn an_assertion_says_who_and_for_whom_and_for_how_long_and_is_signed_by_the_first_key() {
    let bench = Bench::new();
    let [header, claims] = read(&bench.text(), &bench.issuer.key_set).unwrap();
    let key_set: Value = serde_json::from_str(&bench.issuer.key_set).unwrap();
    let keys = key_set["keys"].as_array().unwrap();
    assert_eq!((keys.len(), keys[0].as_object().unwrap().len()), (2, 7), "and nothing private");
    for (field, value) in [("kty", "EC"), ("crv", "P-256"), ("use", "sig"), ("alg", "ES256")] {
        assert_eq!(keys[1][field], json!(value));
    }
    assert_eq!(header, json!({ "alg": "ES256", "typ": "JWT", "kid": keys[0]["kid"] }));
    let expected = json!({
        "iss": NAME, "aud": "acme", "sub": "4", "owner": OWNER.to_checksum(None), "tier": 3, "chain": 8004,
        "registry": "0x5FbDB2315678afecb367f032d93F642f64180aa3",
        "iat": NOW, "exp": NOW + 60, "jti": URL_SAFE_NO_PAD.encode([1; 32]),
    });
    assert_eq!(claims, expected);
    assert_eq!(read(&bench.text(), &Bench::new().issuer.key_set), None, "no other issuer has signed it");
}

// threat: An assertion says what is no more true
#[test]
fn one_is_signed_in_30_s_for_an_agent_and_tenant() {
    let bench = Bench::new();
    let first = bench.text();
    bench.clock.advance_micros(29_999_999);
    assert!(Arc::ptr_eq(&bench.text(), &first));
    bench.clock.advance_micros(1);
    let second = bench.text();
    let [_, claims] = read(&second, &bench.issuer.key_set).unwrap();
    assert_eq!((claims["iat"].as_u64(), claims["exp"].as_u64()), (Some(NOW + 30), Some(NOW + 90)));
    assert!(Arc::ptr_eq(&bench.text(), &second));
    // Upstreams refuse what was issued in their future.
    bench.clock.step_wall_secs(-1);
    assert_ne!(bench.text(), second);
    assert_eq!(*bench.bytes.next.lock(), 3, "each has an id of its own, and no other was made");
}

// threat: An assertion says what is no more true
#[test]
fn what_is_no_more_true_is_replaced_at_once_and_no_tenant_or_agent_gets_anothers() {
    let bench = Bench::new();
    let about = |agent, owner, tier, tenant| bench.about(agent, owner, tier, tenant).unwrap();
    let all = [
        about(4, OWNER, Tier::Gold, "acme"),
        about(4, OWNER, Tier::Silver, "acme"),
        about(4, Address::ZERO, Tier::Silver, "acme"),
        about(4, Address::ZERO, Tier::Silver, "beta"),
        about(5, Address::ZERO, Tier::Silver, "beta"),
    ];
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    assert!(Arc::ptr_eq(&about(4, Address::ZERO, Tier::Silver, "acme"), &all[2]));
    let said = |text: &str, claim: &str| read(text, &bench.issuer.key_set).unwrap()[1][claim].clone();
    assert_eq!((said(&all[1], "tier"), said(&all[3], "aud")), (json!(2), json!("beta")));
    assert_eq!(
        (said(&all[2], "owner"), said(&all[4], "sub")),
        (json!(Address::ZERO.to_checksum(None)), json!("5"))
    );
}

#[test]
fn one_signs_of_many_who_ask_at_once() {
    let (bench, threads) = (Bench::new(), 8);
    for _ in 0..20 {
        bench.clock.advance_secs(30);
        let barrier = Barrier::new(threads);
        let texts: HashSet<Arc<str>> = std::thread::scope(|scope| {
            let ask = || {
                barrier.wait();
                bench.text()
            };
            let asking: Vec<_> = (0..threads).map(|_| scope.spawn(ask)).collect();
            asking.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        assert_eq!(texts.len(), 1);
    }
}

// threat: An assertion says what is no more true
#[test]
fn without_randomness_there_is_no_assertion_until_it_is_back() {
    let bench = Bench::new();
    bench.bytes.is_empty.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(bench.about(4, OWNER, Tier::Gold, "acme"), Err(NoEntropy));
    }
    bench.bytes.is_empty.store(false, Ordering::SeqCst);
    assert!(read(&bench.text(), &bench.issuer.key_set).is_some());
}

#[test]
fn more_agents_than_are_kept_are_served_and_the_memory_is_bounded() {
    let bench = Bench::new();
    for agent in 0..KEPT_MAX as u64 + 500 {
        bench.about(agent, OWNER, Tier::Gold, "acme").unwrap();
    }
    assert!(bench.issuer.signed.len() <= KEPT_MAX);
}

#[test]
fn an_issuer_is_the_same_while_its_name_and_keys_are() {
    let (issuer, other) = (Bench::new().issuer, keys(2));
    assert!(issuer.is(NAME, &issuer.keys) && !issuer.is("other", &issuer.keys) && !issuer.is(NAME, &other));
}
