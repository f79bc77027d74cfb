//! With Redis' own clock, and with TLS and a password.

use std::sync::Arc;

use crate::domain::quota::Quota;
use crate::domain::secret::Secret;
use crate::os::Os;
use crate::ports::clock::Clock;
use crate::ports::store::{Admission, KeyChange, KeyChanged, Metered, Proof, Scope, Store};
use crate::store::contract::{ONE, agent, claim, digest, key};
use crate::store::redis::RunningRedisStore;
use crate::store::redis::names::{self, Shard};
use crate::store::redis::options::{Options, TlsFiles};
use crate::store::redis::scripts::Request;
use crate::store::redis::tests::secured::certificates;
use crate::store::redis::tests::server::RedisServer;
use crate::store::redis::tests::{AHEAD_SECS, DAY_SECS, options, ready};
use crate::telemetry::metrics::Metrics;

/// A store as the product opens it.
pub(super) fn open(options: Options) -> RunningRedisStore {
    RunningRedisStore::open(options, Arc::new(Os::new()), Metrics::new().unwrap()).unwrap()
}

async fn millis_left(store: &RunningRedisStore, name: String) -> u64 {
    let ttl = Request::command("PTTL").arg(name);
    let ttl = store.store.servers.ask(Shard::of_agent(agent(1)), ttl).await.unwrap();
    crate::store::redis::answers::number(&ttl).unwrap()
}

#[tokio::test]
async fn windows_and_nonces_are_counted_by_the_clock_of_redis_and_go_when_they_mean_nothing() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = open(options(&server.url()));
    ready(&store).await;
    let now_secs = Os::new().unix_seconds();
    let early = Proof::Nonce(claim(1, now_secs));
    let refused = store.admit(agent(1), &Scope::Api, ONE, &early).await.unwrap();
    assert_eq!(refused, Admission::NonceUsed, "it might have been used in a Redis that is gone");

    let nonce = claim(2, now_secs + AHEAD_SECS + 60);
    let admitted = store.admit(agent(1), &Scope::Api, ONE, &Proof::Nonce(nonce)).await.unwrap();
    assert_eq!(admitted, Admission::Admitted { remaining: 0 });
    let window_millis = millis_left(&store, names::window(agent(1), &Scope::Api)).await;
    assert!((40_000..=60_000).contains(&window_millis), "{window_millis}");
    let nonce_millis = millis_left(&store, names::nonce(agent(1), nonce.nonce)).await;
    let kept_millis = (DAY_SECS + 60) * 1_000;
    assert!((kept_millis - 20_000..=kept_millis).contains(&nonce_millis), "{nonce_millis}");

    let again = Proof::Nonce(claim(3, now_secs + AHEAD_SECS + 60));
    let Admission::Limited { retry_after } = store.admit(agent(1), &Scope::Api, ONE, &again).await.unwrap()
    else {
        panic!("one a minute")
    };
    assert!((40..=60).contains(&retry_after.seconds()));
    // A window that is over within the blink of an eye admits again.
    let brief = Quota { limit: 1, window_micros: 1 };
    let change = KeyChange::Issue(key(2));
    let issued = store.change_key(agent(2), claim(1, now_secs + AHEAD_SECS + 60), change).await.unwrap();
    assert_eq!(issued, KeyChanged::Done);
    for _ in 0..100 {
        let admitted = store.admit(agent(2), &Scope::Api, brief, &Proof::Key(digest(2))).await.unwrap();
        assert_eq!(admitted, Admission::Admitted { remaining: 0 });
    }
    let client = crate::domain::client::ClientNet::of("192.0.2.1".parse().unwrap());
    for _ in 0..100 {
        let hit = store.charge(client, agent(1), brief).await.unwrap();
        assert_eq!(hit, Metered::Counted { remaining: 0 });
    }
}

#[tokio::test]
async fn tls_with_certificates_on_both_sides_and_a_password_open_the_door_and_nothing_less_does() {
    pingora::tls::install_default_crypto_provider();
    let folder = tempfile::tempdir().unwrap();
    let Some(placeholder) = RedisServer::start(&[]) else { return };
    let files = certificates(&folder, &[&placeholder.host.host]);
    let (cert, key_file) = files.identity.clone().unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let server = placeholder.instead(&[
        "--port",
        "0",
        "--tls-port",
        "6379",
        "--tls-cert-file",
        &path(&cert),
        "--tls-key-file",
        &path(&key_file),
        "--tls-ca-cert-file",
        &path(files.ca.as_ref().unwrap()),
        "--requirepass",
        "pass word",
    ]);
    let sound = Options {
        tls: files.clone(),
        password: Some(Secret::new("pass word")),
        ..options(&server.url().replace("redis:", "rediss:"))
    };
    let store = open(sound.clone());
    ready(&store).await;
    let signed_at = Os::new().unix_seconds() + AHEAD_SECS + 60;
    store.change_key(agent(1), claim(1, signed_at), KeyChange::Issue(key(1))).await.unwrap();
    assert!(store.has_key(agent(1)).await.unwrap());

    let no_identity = TlsFiles { identity: None, ..files.clone() };
    for lacking in [
        Options { password: None, ..sound.clone() },
        Options { password: Some(Secret::new("other")), ..sound.clone() },
        Options { tls: no_identity, ..sound.clone() },
        Options { url: crate::domain::redis_url::RedisUrl::parse(&server.url()).unwrap(), ..sound.clone() },
    ] {
        let store = open(lacking);
        refused(&store).await;
        let fault = store.has_key(agent(1)).await.unwrap_err().to_string();
        assert!(!fault.contains("pass word"), "{fault}");
    }
}

/// Waits until a connection has been tried and has failed.
pub(super) async fn refused(store: &RunningRedisStore) {
    let failed = store.store.shared.metrics.store_connects.with_label_values(&["failed"]);
    let tried = async {
        while failed.get() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::store::redis::tests::PATIENCE, tried).await.unwrap();
}
