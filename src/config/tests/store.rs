//! `[store]`: what goes together, and what belongs to the kind that is not chosen.

use super::bounds::{check_with, settings};
use super::{minimal_with, parse, problems};
use crate::config::store::StoreSettings;
use crate::config::store::redis_keys::{RedisPassword, RedisSettings};
use crate::domain::secret::Secret;

type Key<'a> = (&'a str, &'a str);

const REDIS: Key<'_> = ("store.kind", "\"redis\"");
const PLAIN: Key<'_> = ("store.url", "\"redis://a\"");
const TLS: Key<'_> = ("store.url", "\"rediss://a\"");
const SENTINELS: Key<'_> = ("store.url", "\"redis-sentinel://a,b/service\"");
const CA: Key<'_> = ("store.ca", "\"c\"");
const CERT: Key<'_> = ("store.cert", "\"d\"");
const KEY: Key<'_> = ("store.key", "\"e\"");
const TEXT: Key<'_> = ("store.password", "\"p\"");
const FILE: Key<'_> = ("store.password_file", "\"f\"");
const USER: Key<'_> = ("store.sentinel_username", "\"u\"");
const SENTINEL_TEXT: Key<'_> = ("store.sentinel_password", "\"q\"");
const SENTINEL_FILE: Key<'_> = ("store.sentinel_password_file", "\"g\"");

fn redis(keys: &[Key<'_>]) -> RedisSettings {
    let StoreSettings::Redis(redis) = settings(keys).store else { panic!("{keys:?} is no Redis") };
    *redis
}

#[test]
fn requests_to_redis_take_a_millisecond_to_five_seconds() {
    for path in ["store.timeout", "store.wait_timeout"] {
        check_with(&[REDIS], path, "'1ms', '5s'", "'0s', '999us', '5001ms', 1");
    }
    check_with(&[REDIS], "store.wait_replicas", "0, 16", "-1, 17");
}

#[test]
fn what_belongs_to_redis_goes_together() {
    for keys in [
        &[REDIS][..],
        &[REDIS, PLAIN, TEXT],
        &[REDIS, PLAIN, FILE],
        &[REDIS, TLS, CA],
        &[REDIS, TLS, CERT, KEY],
        &[REDIS, ("store.url", "\"rediss-sentinel://a/s\""), CA, CERT, KEY],
        &[REDIS, ("store.url", "\"rediss+cluster://a,b\""), CA, CERT, KEY],
        &[REDIS, ("store.url", "\"redis://u@a\""), TEXT],
        &[REDIS, SENTINELS],
        &[REDIS, SENTINELS, SENTINEL_TEXT],
        &[REDIS, SENTINELS, USER, SENTINEL_FILE],
        &[REDIS, ("store.url", "\"redis-sentinel://u:p@a/s\""), SENTINEL_FILE],
    ] {
        settings(keys);
    }
    for (keys, start) in [
        (&[REDIS, TEXT, FILE][..], "store.password: "),
        (&[REDIS, ("store.url", "\"redis://:p@a\""), FILE], "store.password: "),
        (&[REDIS, PLAIN, CA], "store.url: "),
        (&[REDIS, PLAIN, CERT, KEY], "store.url: "),
        (&[REDIS, SENTINELS, CA], "store.url: "),
        (&[REDIS, ("store.url", "\"redis+cluster://a\""), CA], "store.url: "),
        (&[REDIS, TLS, CERT], "store.key: "),
        (&[REDIS, ("store.url", "\"redis://u@a\"")], "store.url: "),
        (&[REDIS, SENTINELS, SENTINEL_TEXT, SENTINEL_FILE], "store.sentinel_password: "),
        (&[REDIS, SENTINELS, USER], "store.sentinel_username: has no password"),
        (&[REDIS, PLAIN, SENTINEL_TEXT], "store.sentinel_password: store.sentinel_password is for Sentinels"),
        (&[REDIS, SENTINEL_FILE], "store.sentinel_password_file: "),
        (&[REDIS, ("store.url", "\"redis+cluster://a\""), USER], "store.sentinel_username: "),
        (
            &[REDIS, ("store.url", "\"redis-sentinel://:SECRET@a,b,A:26379/SECRET\""), SENTINEL_TEXT],
            "store.url: names the Sentinel A:26379 twice; name each once",
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
    let url = ("store.url", "\"rediss-sentinel://u:p@a/s\"");
    let read = redis(&[REDIS, url, ("store.sentinel_username", "\"w\""), SENTINEL_TEXT]);
    assert_eq!((read.url.user(), read.url.password().map(Secret::reveal)), (Some("u"), Some("p")));
    assert_eq!(read.sentinel_username.as_deref(), Some("w"));
    assert_eq!(read.sentinel_password, Some(RedisPassword::Text(Secret::new("q"))));
    let read = redis(&[REDIS, url, SENTINEL_FILE]);
    assert_eq!(read.sentinel_password, Some(RedisPassword::File("g".into())));
    assert_eq!((read.password, read.sentinel_username), (None, None));
}

#[test]
fn a_key_of_the_kind_that_is_not_chosen_is_a_problem_unless_it_says_its_default() {
    let of_redis = [
        (PLAIN, ("store.url", "\"redis://127.0.0.1\"")),
        (("store.timeout", "\"1s\""), ("store.timeout", "\"250 ms\"")),
        (("store.wait_replicas", "1"), ("store.wait_replicas", "0")),
        (("store.wait_timeout", "\"1s\""), ("store.wait_timeout", "\"250ms\"")),
    ];
    for (other, default) in of_redis {
        let found = problems(&minimal_with(&[other]), &[]);
        let path = other.0;
        let phrase = "leave it out, or choose the other kind";
        assert_eq!(found, [format!("{path}: {path} means nothing for the kind \"embedded\"; {phrase}")]);
        assert_eq!(problems(&minimal_with(&[default]), &[]), [""; 0]);
    }
    for key in [TEXT, FILE, USER, SENTINEL_TEXT, SENTINEL_FILE, CA] {
        let found = problems(&minimal_with(&[key]), &[]);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{}: ", key.0)), "{key:?}: {found:?}");
    }
    assert_eq!(problems(&minimal_with(&[CERT, KEY]), &[]).len(), 2);
    let all = [PLAIN, TEXT, USER, SENTINEL_FILE, CA, CERT, KEY, ("store.wait_replicas", "2")];
    assert_eq!(problems(&minimal_with(&all), &[]).len(), all.len(), "each is named");

    let elsewhere = ("store.path", "\"/var/lib/tiergate\"");
    let found = problems(&minimal_with(&[REDIS, elsewhere]), &[]);
    assert!(found.len() == 1 && found[0].starts_with("store.path: store.path means nothing"), "{found:?}");
    assert_eq!(problems(&minimal_with(&[REDIS, ("store.path", "\"./data\"")]), &[]), [""; 0]);
}

#[test]
fn the_variable_that_brought_the_kinds_apart_is_named() {
    let file = minimal_with(&[("store.path", "\"/var/lib/tiergate\"")]);
    let found = problems(&file, &[("TIERGATE__STORE__KIND", "redis")]);
    let expected = "TIERGATE__STORE__KIND: store.path means nothing for the kind \"redis\"";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    let found = problems(&minimal_with(&[]), &[("TIERGATE__STORE__PASSWORD", "SECRET")]);
    let expected = "TIERGATE__STORE__PASSWORD: store.password means nothing";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    let both = [("TIERGATE__STORE__KIND", "redis"), ("TIERGATE__STORE__PATH", "./data")];
    assert!(parse(&file, &both).is_ok(), "the environment sets right what the file has");
}
