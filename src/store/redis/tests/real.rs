//! With Redis' own clock, and with TLS and a password.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;

use crate::domain::{Quota, RedisUrl, Secret, Verdict};
use crate::os::Os;
use crate::ports::{
    Admission, Budget, Clock, KeyBudget, KeyChange, KeyChanged, NonceRefused, Proof, Scope, Store,
};
use crate::store::contract::{ONE, agent, claim, digest, key};
use crate::store::redis::options::{Options, TlsFiles};
use crate::store::redis::tests::secured::{arguments, certificates, tls_settings, words};
use crate::store::redis::tests::server::{Admin, RedisServer, own_ip};
use crate::store::redis::tests::{AHEAD_SECS, options, ready, refused};
use crate::store::{redis::RedisStore, redis::answers::read, redis::info::Info, redis::names::Name};
use crate::telemetry::Metrics;

const HOUR_SECS: u64 = 3_600;

/// A store as the product opens it.
pub(super) fn open(options: Options) -> RedisStore {
    RedisStore::open(options, Arc::new(Os::new()), Metrics::new().unwrap()).unwrap()
}

/// For how long Redis keeps something more.
async fn millis_left(store: &RedisStore, name: Name<'_>) -> u64 {
    read(&store.servers.ask(store.shared.command("PTTL", name)).await.unwrap()).unwrap()
}

/// The time by Redis' clock.
async fn millis(administrator: &mut MultiplexedConnection) -> u64 {
    let (secs, micros): (u64, u64) = redis::cmd("TIME").query_async(administrator).await.unwrap();
    secs * 1_000 + micros / 1_000
}

#[tokio::test]
async fn windows_are_counted_by_the_clock_of_redis_and_go_when_they_mean_nothing() {
    let Some(server) = RedisServer::start(&[]).await else { return };
    let mut administrator = server.connected().await;
    let began_secs = Os::new().unix_seconds();
    let store = open(options(&server.url()));
    ready(&store).await;
    let now_secs = Os::new().unix_seconds();
    let early = Proof::Nonce(claim(1, now_secs - HOUR_SECS));
    let refused = store.admit(agent(1), &Scope::Api, ONE, &early).await.unwrap();
    let Admission::NonceRefused(NonceRefused::Forgotten { accepted_from, retry_after }) = refused else {
        panic!("it might have been used in a Redis that is gone: {refused:?}")
    };
    // The epochs were begun meanwhile, one after the other.
    let ended_secs = Os::new().unix_seconds();
    let due = began_secs + AHEAD_SECS..=ended_secs + AHEAD_SECS + 2;
    let said = [accepted_from.0, ended_secs + retry_after.seconds()];
    assert!(said.iter().all(|secs| due.contains(secs)), "{said:?}, {due:?}");
    let everywhere = store.signatures_accepted_from().unwrap();
    assert!((accepted_from.0..=accepted_from.0 + 1).contains(&everywhere.0), "{everywhere:?}");

    let before = millis(&mut administrator).await;
    let nonce = claim(2, now_secs + HOUR_SECS);
    let admitted = store.admit(agent(1), &Scope::Api, ONE, &Proof::Nonce(nonce)).await.unwrap();
    assert_eq!(admitted, Admission::Admitted { remaining: 0 });
    let again = Proof::Nonce(claim(3, now_secs + HOUR_SECS));
    let Admission::Limited { retry_after } = store.admit(agent(1), &Scope::Api, ONE, &again).await.unwrap()
    else {
        panic!("one a minute")
    };
    let window_millis = millis_left(&store, Name::Window(agent(1), &Scope::Api)).await;
    let after = millis(&mut administrator).await;
    // All of it happened between two looks at the same clock, which rounds down.
    let passed = after - before;
    // A window is kept for two widths after its first admission in each.
    for (left_millis, most) in [(window_millis, 120_000_u64), (retry_after.seconds() * 1_000, 60_000)] {
        let due = most.saturating_sub(passed + 1)..=most;
        assert!(due.contains(&left_millis), "{left_millis} of {most}, {passed}");
    }

    // A window that is over within the blink of an eye admits again.
    let brief = Quota { limit: 1, window_micros: 1 };
    let change = KeyChange::Issue(key(2));
    let issued = store.changed(agent(2), claim(1, now_secs + HOUR_SECS), change).await.unwrap();
    assert_eq!(issued, KeyChanged::Done);
    for _ in 0..100 {
        let admitted = store.admit(agent(2), &Scope::Api, brief, &Proof::Key(digest(2))).await.unwrap();
        assert_eq!(admitted, Admission::Admitted { remaining: 0 });
    }
    let client = crate::domain::ClientNet::of("192.0.2.1".parse().unwrap());
    for _ in 0..100 {
        let hit = store.count(&Budget::Key(client, agent(1), KeyBudget::Changes), brief).await.unwrap();
        assert_eq!(hit, Verdict::Admitted { remaining: 0 });
    }
}

#[tokio::test]
async fn tls_with_certificates_on_both_sides_and_a_password_open_the_door_and_nothing_less_does() {
    pingora::tls::install_default_crypto_provider();
    let (folder, ip) = (tempfile::tempdir().unwrap(), own_ip());
    let files = certificates(&folder, &[&ip.to_string()]);
    let settings =
        [arguments(&tls_settings(&files, 6_379)), vec!["--requirepass".into(), "pass word".into()]];
    let admin = Admin { tls: files.clone(), password: Some("pass word") };
    let Some(server) = RedisServer::start_at(ip, &words(&settings.concat()), admin).await else { return };
    let complete = Options {
        tls: files.clone(),
        password: Some(Secret::new("pass word")),
        ..options(&server.url().replace("redis:", "rediss:"))
    };
    let store = open(complete.clone());
    ready(&store).await;
    let signed_at = Os::new().unix_seconds() + HOUR_SECS;
    store.changed(agent(1), claim(1, signed_at), KeyChange::Issue(key(1))).await.unwrap();
    assert!(store.has_key(agent(1)).await.unwrap());

    let no_identity = TlsFiles { identity: None, ..files.clone() };
    for lacking in [
        Options { password: None, ..complete.clone() },
        Options { password: Some(Secret::new("other")), ..complete.clone() },
        Options { tls: no_identity, ..complete.clone() },
        Options { url: RedisUrl::parse(&server.url()).unwrap(), ..complete.clone() },
    ] {
        let store = open(lacking);
        refused(&store).await;
        let fault = store.has_key(agent(1)).await.unwrap_err().to_string();
        assert!(!fault.contains("pass word"), "{fault}");
    }
}

/// As managed servers do.
#[tokio::test]
async fn the_policy_of_a_server_whose_info_lacks_it_is_read_from_its_configuration() {
    for policy in ["noeviction", "allkeys-lru"] {
        let Some(server) = RedisServer::start(&["--maxmemory-policy", policy]).await else { return };
        let text = "run_id:a\r\nloading:0\r\nevicted_keys:0\r\nrole:master\r\nmaster_replid:b\r\n";
        let info = Info::read(text).completed(&mut server.connected().await).await;
        assert_eq!(info.check_usable(&info).is_ok(), policy == "noeviction");
    }
}
