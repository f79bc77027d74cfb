//! `[store]`: which keys go together, which are for the kind that is not chosen, and where they stood before.

use super::bounds::settings;
use super::{minimal_with, problems, says, variable};
use crate::config::{schema::declared, store::StoreSettings};
use crate::domain::{Secret, SecretSource};

#[test]
fn what_belongs_to_redis_goes_together() {
    says(
        "store.kind = 'redis'",
        r#"
        store.redis = { url = 'redis://u@a' }
        $TIERGATE__STORE__REDIS__PASSWORD = p
        ok
        store.redis = { url = 'redis://u@a', password_file = 'f' }
        ok
        store.redis = { url = 'redis://a', password = 'p' }
        ok
        store.redis = { url = 'rediss://a', ca = 'c', cert = 'd', key = 'e' }
        ok
        store.redis = { url = 'rediss+cluster://a,b', ca = 'c', cert = 'd', key = 'e' }
        ok
        store.redis = { url = 'rediss-sentinel://u:p@a/s', ca = 'c', sentinel_username = 'u', sentinel_password_file = 'g' }
        ok
        store.redis = { url = 'redis-sentinel://a,b/s', sentinel_password = 'q' }
        ok
        store.redis = { url = 'redis-sentinel://a,b/s' }
        ok
        store.redis = { url = 'redis://u@a' }
        ! store.redis.url: is redis://a:6379 with a user, and nothing has the password; set TIERGATE__STORE__REDIS__PASSWORD as the service has it, or name a file that holds it in store.redis.password_file
        store.redis = { password = 'SECRET', password_file = 'f' }
        ! store.redis.password: stands beside store.redis.password_file; write one of them
        store.redis = { url = 'redis://:p@a', password_file = 'f' }
        ! store.redis.password_file: is a second password beside the one in url; write one of them
        store.redis = { ca = 'c' }
        ! store.redis.url: is redis://127.0.0.1:6379, which has no TLS; …
        store.redis = { url = 'redis-sentinel://a,b/service', cert = 'd', key = 'e' }
        ! store.redis.url: is redis-sentinel://a:26379,b:26379, which has no TLS; …
        store.redis = { url = 'rediss://a', cert = 'd' }
        ! store.redis.key: cert and key go together; write both or neither
        store.redis = { url = 'redis-sentinel://a/s', sentinel_password = 'SECRET', sentinel_password_file = 'g' }
        ! store.redis.sentinel_password: stands beside store.redis.sentinel_password_file; write one of them
        store.redis = { url = 'redis-sentinel://a/s', sentinel_username = 'u' }
        ! store.redis.sentinel_username: has no password; set TIERGATE__STORE__REDIS__SENTINEL_PASSWORD …
        store.redis = { sentinel_password = 'SECRET' }
        ! store.redis.sentinel_password: store.redis.sentinel_password is for Sentinels, and url is redis://127.0.0.1:6379; leave it out
        store.redis = { url = 'redis+cluster://a', sentinel_username = 'u', sentinel_password_file = 'g' }
        ! store.redis.sentinel_username: store.redis.sentinel_username is for Sentinels, …
        ! store.redis.sentinel_password_file: store.redis.sentinel_password_file is for Sentinels, …
        store.redis = { url = 'redis-sentinel://:SECRET@a,b,A:26379/SECRET' }
        ! store.redis.url: names the Sentinel A:26379 twice; name each once, since each has one vote
        "#,
    );
}

#[test]
fn servers_and_sentinels_have_logins_of_their_own() {
    let redis = |sentinels: &str| {
        let keys = format!("{{ url = 'rediss-sentinel://u:p@a/s', {sentinels} }}");
        let store = settings(&[("store.kind", "'redis'"), ("store.redis", &keys)]).fixed.store;
        let StoreSettings::Redis(redis) = store else { panic!("{store:?}") };
        *redis
    };
    let read = redis("sentinel_username = 'w', sentinel_password = 'q'");
    let password = read.url.password.as_ref().map(Secret::reveal);
    assert_eq!((read.url.user.as_deref(), password), (Some("u"), Some("p")));
    assert_eq!(read.sentinel_username.as_deref(), Some("w"));
    assert_eq!(read.sentinel_password, Some(SecretSource::Text(Secret::new("q"))));
    let read = redis("sentinel_password_file = 'g'");
    assert_eq!(read.sentinel_password, Some(SecretSource::File("g".into())));
    assert_eq!((read.password, read.sentinel_username), (None, None));
}

#[test]
fn keys_for_the_kind_that_is_not_chosen_are_one_problem_whatever_they_say() {
    says(
        "",
        r#"
        store.redis = { timeout = '250ms' }
        ! store.redis.timeout: [store.redis] has no meaning for the kind "embedded"; remove it, or choose the other kind
        store.redis = { url = 'rediss://a', ca = 'c', cert = 'd', key = 'e', password = 'p' }
        ! store.redis.url: [store.redis] has no meaning for the kind "embedded"; remove it, or choose the other kind
        store.redis = { timeout = '6s' }
        ! store.redis.timeout: is "6s"; …
        ! store.redis.timeout: [store.redis] has no meaning for the kind "embedded"; …
        $TIERGATE__STORE__REDIS__PASSWORD = SECRET
        ! TIERGATE__STORE__REDIS__PASSWORD: [store.redis] has no meaning for the kind "embedded"; …
        store.kind = 'redis'
        store.embedded = { path = './data' }
        ! store.embedded.path: [store.embedded] has no meaning for the kind "redis"; remove it, or choose the other kind
        $TIERGATE__STORE__KIND = redis
        store.embedded = { create = true }
        ! TIERGATE__STORE__KIND: [store.embedded] has no meaning for the kind "redis"; …
        store.kind = 'redis'
        store.embedded = {}
        ok
        "#,
    );
}

/// Earlier versions had all keys in `[store]`.
#[test]
fn a_key_that_stands_in_store_itself_is_an_error_that_says_where_it_belongs() {
    let keys = declared().into_iter().filter_map(|key| {
        let (table, name) = key.path.rsplit_once('.')?;
        table.starts_with("store.").then(|| (table.to_owned(), name.to_owned(), key.example().unwrap()))
    });
    let mut tried = 0;
    for (table, name, value) in keys {
        let old = format!("store.{name}");
        let found = problems(&minimal_with(&[(&old, &value.to_string())]), &[]);
        assert_eq!(found, [format!("{old}: is not a known key; did you mean {table}.{name}?")]);
        let [old, new] = [old, format!("{table}.{name}")].map(|path| variable(&path));
        let found = problems(&minimal_with(&[]), &[(&old, "SECRET")]);
        assert_eq!(found, [format!("{old}: is not a known variable; did you mean {new}?")]);
        tried += 1;
    }
    assert_eq!(tried, 15);
}
