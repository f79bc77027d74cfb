//! `[store]`: which keys go together, which are for the kind that is not chosen, and where they stood before.

use super::bounds::{check_with, settings};
use super::{minimal_with, problems};
use crate::config::{schema::declared, store::StoreSettings, store::redis_keys::RedisSettings};
use crate::domain::{Secret, SecretSource};

type Key<'a> = (&'a str, &'a str);

const REDIS: Key<'_> = ("store.kind", "\"redis\"");
const PLAIN: Key<'_> = ("store.redis.url", "\"redis://a\"");
const TLS: Key<'_> = ("store.redis.url", "\"rediss://a\"");
const SENTINELS: Key<'_> = ("store.redis.url", "\"redis-sentinel://a,b/service\"");
const CA: Key<'_> = ("store.redis.ca", "\"c\"");
const CERT: Key<'_> = ("store.redis.cert", "\"d\"");
const KEY: Key<'_> = ("store.redis.key", "\"e\"");
const TEXT: Key<'_> = ("store.redis.password", "\"p\"");
const FILE: Key<'_> = ("store.redis.password_file", "\"f\"");
const USER: Key<'_> = ("store.redis.sentinel_username", "\"u\"");
const SENTINEL_TEXT: Key<'_> = ("store.redis.sentinel_password", "\"q\"");
const SENTINEL_FILE: Key<'_> = ("store.redis.sentinel_password_file", "\"g\"");

fn redis(keys: &[Key<'_>]) -> RedisSettings {
    let StoreSettings::Redis(redis) = settings(keys).fixed.store else { panic!("{keys:?} is no Redis") };
    *redis
}

#[test]
fn a_prefix_of_names_has_no_sign_that_chooses_a_slot_or_widens_a_pattern() {
    let (most, more) = ("x".repeat(64), "x".repeat(65));
    let wrong = format!("'{more}', 'a{{b}}', 'a*', 'a?', 'a[b]', 'a b', 'ä', 1");
    check_with(&[REDIS], "store.redis.prefix", &format!("'', 'blue:', 'a-b_c.D9', '{most}'"), &wrong);
}

#[test]
fn what_belongs_to_redis_goes_together() {
    for keys in [
        &[REDIS][..],
        &[REDIS, PLAIN, TEXT],
        &[REDIS, PLAIN, FILE],
        &[REDIS, TLS, CA],
        &[REDIS, TLS, CERT, KEY],
        &[REDIS, ("store.redis.url", "\"rediss-sentinel://a/s\""), CA, CERT, KEY],
        &[REDIS, ("store.redis.url", "\"rediss+cluster://a,b\""), CA, CERT, KEY],
        &[REDIS, ("store.redis.url", "\"redis://u@a\""), TEXT],
        &[REDIS, SENTINELS],
        &[REDIS, SENTINELS, SENTINEL_TEXT],
        &[REDIS, SENTINELS, USER, SENTINEL_FILE],
        &[REDIS, ("store.redis.url", "\"redis-sentinel://u:p@a/s\""), SENTINEL_FILE],
    ] {
        settings(keys);
    }
    for (keys, start) in [
        (&[REDIS, TEXT, FILE][..], "store.redis.password: stands beside store.redis.password_file"),
        (
            &[REDIS, ("store.redis.url", "\"redis://:p@a\""), FILE],
            "store.redis.password_file: is a second password",
        ),
        (&[REDIS, PLAIN, CA], "store.redis.url: "),
        (&[REDIS, PLAIN, CERT, KEY], "store.redis.url: "),
        (&[REDIS, SENTINELS, CA], "store.redis.url: "),
        (&[REDIS, ("store.redis.url", "\"redis+cluster://a\""), CA], "store.redis.url: "),
        (&[REDIS, TLS, CERT], "store.redis.key: "),
        (
            &[REDIS, ("store.redis.url", "\"redis://u@a\"")],
            "store.redis.url: is redis://a:6379 with a user, and nothing has the password; set \
             TIERGATE__STORE__REDIS__PASSWORD as the service has it, or name a file that holds it in \
             store.redis.password_file",
        ),
        (&[REDIS, SENTINELS, SENTINEL_TEXT, SENTINEL_FILE], "store.redis.sentinel_password: "),
        (
            &[REDIS, SENTINELS, USER],
            "store.redis.sentinel_username: has no password; set TIERGATE__STORE__REDIS__SENTINEL_PASSWORD",
        ),
        (
            &[REDIS, PLAIN, SENTINEL_TEXT],
            "store.redis.sentinel_password: store.redis.sentinel_password is for Sentinels",
        ),
        (&[REDIS, SENTINEL_FILE], "store.redis.sentinel_password_file: "),
        (&[REDIS, ("store.redis.url", "\"redis+cluster://a\""), USER], "store.redis.sentinel_username: "),
        (
            &[REDIS, ("store.redis.url", "\"redis-sentinel://:SECRET@a,b,A:26379/SECRET\""), SENTINEL_TEXT],
            "store.redis.url: names the Sentinel A:26379 twice; name each once",
        ),
    ] {
        let found = problems(&minimal_with(keys), &[]);
        assert_eq!(found.len(), 1, "{keys:?}: {found:?}");
        assert!(found[0].starts_with(start), "{keys:?}: {found:?}");
        assert!(!found[0].contains("SECRET"), "{keys:?}: {found:?}");
    }
}

#[test]
fn servers_and_sentinels_have_logins_of_their_own() {
    let url = ("store.redis.url", "\"rediss-sentinel://u:p@a/s\"");
    let read = redis(&[REDIS, url, ("store.redis.sentinel_username", "\"w\""), SENTINEL_TEXT]);
    assert_eq!(
        (read.url.user.as_deref(), read.url.password.as_ref().map(Secret::reveal)),
        (Some("u"), Some("p"))
    );
    assert_eq!(read.sentinel_username.as_deref(), Some("w"));
    assert_eq!(read.sentinel_password, Some(SecretSource::Text(Secret::new("q"))));
    let read = redis(&[REDIS, url, SENTINEL_FILE]);
    assert_eq!(read.sentinel_password, Some(SecretSource::File("g".into())));
    assert_eq!((read.password, read.sentinel_username), (None, None));
}

#[test]
fn a_user_in_the_url_has_its_password_from_a_variable_or_a_file() {
    let user = ("store.redis.url", "\"redis://tiergate@a\"");
    let password = ("TIERGATE__STORE__REDIS__PASSWORD", "p");
    for (file, variables) in [(&[REDIS, user][..], &[password][..]), (&[REDIS, user, FILE], &[])] {
        assert_eq!(problems(&minimal_with(file), variables), [""; 0]);
    }
}

#[test]
fn keys_for_the_kind_that_is_not_chosen_are_one_problem_whatever_they_say() {
    let default = ("store.redis.timeout", "\"250ms\"");
    for keys in [&[PLAIN][..], &[default], &[TEXT], &[FILE], &[PLAIN, TEXT], &[TLS, CA, CERT, KEY]] {
        let found = problems(&minimal_with(keys), &[]);
        let first = ["store.redis.url", "store.redis.password", "store.redis.password_file", default.0]
            .into_iter()
            .find(|path| keys.iter().any(|key| key.0 == *path));
        let phrase =
            "[store.redis] has no meaning for the kind \"embedded\"; remove it, or choose the other kind";
        assert_eq!(found, [format!("{}: {phrase}", first.unwrap())]);
    }
    let path = ("store.embedded.path", "\"./data\"");
    let found = problems(&minimal_with(&[REDIS, path]), &[]);
    let phrase =
        "[store.embedded] has no meaning for the kind \"redis\"; remove it, or choose the other kind";
    assert_eq!(found, [format!("store.embedded.path: {phrase}")]);
    let found = problems(&minimal_with(&[PLAIN, ("store.redis.timeout", "\"6s\"")]), &[]);
    assert_eq!(found.len(), 2, "mistakes in the table are found besides: {found:?}");
    assert_eq!(problems(&minimal_with(&[REDIS, ("store.embedded", "{}")]), &[]), [""; 0], "it has no keys");
}

#[test]
fn the_variable_that_brought_the_kinds_apart_is_named() {
    let file = minimal_with(&[("store.embedded.path", "\"/var/lib/tiergate\"")]);
    let found = problems(&file, &[("TIERGATE__STORE__KIND", "redis")]);
    let expected = "TIERGATE__STORE__KIND: [store.embedded] has no meaning for the kind \"redis\"";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    let found = problems(&minimal_with(&[]), &[("TIERGATE__STORE__REDIS__PASSWORD", "SECRET")]);
    let expected = "TIERGATE__STORE__REDIS__PASSWORD: [store.redis] has no meaning";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
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
        assert_eq!(found, [format!("{old}: is not a known key; write {name} in [{table}]")]);
        let [old, new] = [old, format!("{table}.{name}")].map(|path| super::environment::variable(&path));
        let found = problems(&minimal_with(&[]), &[(&old, "SECRET")]);
        assert_eq!(found, [format!("{old}: is not a known variable; did you mean {new}?")]);
        tried += 1;
    }
    assert_eq!(tried, 15);
}
