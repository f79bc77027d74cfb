//! URLs of Redis: what they name, what is refused, and what they never show.

use proptest::prelude::{any, prop_assert, proptest};

use super::{NotARedisUrl, RedisHost, RedisLayout, RedisUrl};
use crate::domain::secret::Secret;

fn host(host: &str, port: u16) -> RedisHost {
    RedisHost { host: host.to_owned(), port }
}

#[test]
fn each_scheme_names_its_layout() {
    let (a, b) = (host("a", 1), host("b", 2));
    let service = "mymaster".to_owned();
    for (text, layout, tls, database) in [
        ("redis://a:1", RedisLayout::Single(a.clone()), false, 0),
        ("redis://u:p@a:1/", RedisLayout::Single(a.clone()), false, 0),
        ("rediss://a:1/3", RedisLayout::Single(a.clone()), true, 3),
        ("redis://[::1]", RedisLayout::Single(host("::1", 6_379)), false, 0),
        (
            "redis-sentinel://u:p@a:1,b:2,c/mymaster/4",
            RedisLayout::Sentinel { sentinels: vec![a.clone(), b.clone(), host("c", 26_379)], service },
            false,
            4,
        ),
        ("redis+cluster://a:1,b:2", RedisLayout::Cluster { seeds: vec![a.clone(), b.clone()] }, false, 0),
        ("rediss+cluster://b:2", RedisLayout::Cluster { seeds: vec![b] }, true, 0),
    ] {
        let url = RedisUrl::parse(text).unwrap();
        assert_eq!((&url.layout, url.tls, url.database), (&layout, tls, database), "{text}");
    }
    let secured = RedisUrl::parse("rediss-sentinel://a,b/mymaster/4").unwrap();
    let plain = RedisUrl::parse("redis-sentinel://a,b/mymaster/4").unwrap();
    assert_eq!((&secured.layout, secured.database), (&plain.layout, 4));
    assert!(secured.tls && !plain.tls);
}

#[test]
fn user_and_password_are_decoded() {
    for (text, user, password) in [
        ("redis://a", None, None),
        ("redis://user@a", Some("user"), None),
        ("redis://:pass@a", None, Some("pass")),
        ("redis://us%40er:p%3A%2fs@a", Some("us@er"), Some("p:/s")),
    ] {
        let url = RedisUrl::parse(text).unwrap();
        assert_eq!(
            (url.user.as_deref(), url.password.as_ref().map(Secret::reveal)),
            (user, password),
            "{text}"
        );
    }
}

#[test]
fn debug_and_display_show_scheme_and_hosts_only() {
    for (text, shown) in [
        ("redis://user:SECRET@a/1", "redis://a:6379"),
        ("rediss://:SECRET@[::1]:7", "rediss://[::1]:7"),
        ("redis-sentinel://SECRET:SECRET@a,b/SECRET", "redis-sentinel://a:26379,b:26379"),
        ("rediss-sentinel://:SECRET@a/SECRET", "rediss-sentinel://a:26379"),
        ("redis+cluster://:SECRET@a,b:2", "redis+cluster://a:6379,b:2"),
        ("rediss+cluster://:SECRET@a", "rediss+cluster://a:6379"),
    ] {
        let url = RedisUrl::parse(text).unwrap();
        assert_eq!(format!("{url} {url:?}"), format!("{shown} RedisUrl({shown})"));
    }
}

#[test]
fn what_is_not_such_a_url_is_refused() {
    for text in [
        "",
        "a:1",
        "http://a",
        "REDIS://a",
        "redis:/a",
        "redis://",
        "redis://a:0",
        "redis://a:65536",
        "redis://a:+1",
        "redis://a:",
        "redis://a/x",
        "redis://a/1/2",
        "redis://a/-1",
        "redis://a,b",
        "redis://a?x=1",
        "redis://a#1",
        "redis://a b",
        "redis://u:p:q@a",
        "redis://u:p@q@a",
        "redis://u:%4@a",
        "redis://u:%zz@a",
        "redis://u:%ff@a",
        "redis://[::1",
        "redis://[a]",
        "redis://[::1]x",
        "redis-sentinel://a",
        "rediss-sentinel://a/",
        "redisssentinel://a/m",
        "redis-sentinel://a/",
        "redis-sentinel://a,/m",
        "redis+cluster://a/1",
        "redis+cluster://a,,b",
    ] {
        assert_eq!(RedisUrl::parse(text), Err(NotARedisUrl::Malformed), "{text:?}");
    }
    let many = vec!["a"; 65].join(",");
    assert!(RedisUrl::parse(&format!("redis+cluster://{many}")).is_err());
}

#[test]
fn no_sentinel_is_named_twice_however_it_is_spelled() {
    for (hosts, twice) in [
        ("a,a", host("a", 26_379)),
        ("a,b,c,b", host("b", 26_379)),
        ("a:26379,b,a", host("a", 26_379)),
        ("sentinel.example,Sentinel.EXAMPLE.", host("Sentinel.EXAMPLE.", 26_379)),
        ("127.0.0.1:7,127.0.0.1:7", host("127.0.0.1", 7)),
        ("[::1],[0:0::1]", host("0:0::1", 26_379)),
        ("10.0.0.1,[::ffff:a00:1]", host("::ffff:a00:1", 26_379)),
    ] {
        for scheme in ["redis-sentinel", "rediss-sentinel"] {
            let url = RedisUrl::parse(&format!("{scheme}://:SECRET@{hosts}/SECRET"));
            let error = url.unwrap_err();
            assert_eq!(error, NotARedisUrl::SentinelTwice(twice.clone()), "{hosts}");
            assert_eq!(error.to_string(), format!("it names the Sentinel {twice} twice"));
        }
    }
    // Other ports are other Sentinels, and nodes of a cluster have no votes.
    for text in ["redis-sentinel://a:1,a:2,b:1/s", "redis-sentinel://a,a.b/s", "redis+cluster://a,a"] {
        assert!(RedisUrl::parse(text).is_ok(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics_and_nothing_but_hosts_is_shown(text in any::<String>()) {
        for text in [text.clone(), format!("redis://{text}"), format!("redis-sentinel://{text}/s")] {
            let shown = RedisUrl::parse(&text).map(|url| format!("{url:?}")).unwrap_or_default();
            prop_assert!(!shown.contains('@'));
        }
    }
}
