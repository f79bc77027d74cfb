//! Random paths, read as servers read them: in any order of the steps that some server takes.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::select;
use proptest::strategy::{Just, Strategy};
use proptest::test_runner::{Config, TestRunner};

use super::{route, shop, tenant};
use crate::domain::routing::{Decision, decide, ruled};
use crate::domain::tenant::{Route, RouteAccess, Tenant};
use crate::domain::{mcp::CallPatterns, path::PathPattern, tier::Tier};

/// What some server does to a path before it looks for a file or a handler.
#[derive(Debug, Clone, Copy)]
enum Step {
    Decode,
    DecodeLetters,
    TurnBackslashes,
    CutParameters,
    CutQuery,
    JoinSlashes,
    TrimNames,
    ResolveDots,
    ReadOverlong,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Decode),
        Just(Step::DecodeLetters),
        Just(Step::TurnBackslashes),
        Just(Step::CutParameters),
        Just(Step::CutQuery),
        Just(Step::JoinSlashes),
        Just(Step::TrimNames),
        Just(Step::ResolveDots),
        Just(Step::ReadOverlong),
    ]
}

/// Bytes as characters of the same number, so that text functions can work on them.
fn apply(step: Step, path: &str) -> String {
    let segments = || path.split('/');
    match step {
        Step::Decode => decoded(path, |_| true),
        Step::DecodeLetters => decoded(path, |char| char.is_ascii_alphanumeric() || "-._~".contains(char)),
        Step::TurnBackslashes => path.replace('\\', "/"),
        Step::CutParameters => {
            segments().map(|name| name.split(';').next().unwrap()).collect::<Vec<_>>().join("/")
        }
        Step::CutQuery => path.split(['?', '#']).next().unwrap().to_owned(),
        Step::JoinSlashes => {
            let mut joined = path.to_owned();
            while joined.contains("//") {
                joined = joined.replace("//", "/");
            }
            joined
        }
        Step::TrimNames => {
            let trimmed = |name: &str| match name.trim_end_matches([' ', '.']) {
                "" => name.trim_matches(' ').to_owned(),
                rest => rest.trim_matches(' ').to_owned(),
            };
            segments().map(trimmed).collect::<Vec<_>>().join("/")
        }
        Step::ResolveDots => {
            let mut kept: Vec<&str> = Vec::new();
            for name in segments().skip(1) {
                match name {
                    "." => {}
                    ".." => drop(kept.pop()),
                    name => kept.push(name),
                }
            }
            format!("/{}", kept.join("/"))
        }
        Step::ReadOverlong => path.replace("\u{c0}\u{ae}", ".").replace("\u{c0}\u{af}", "/"),
    }
}

fn decoded(path: &str, wanted: impl Fn(char) -> bool) -> String {
    let mut text = String::new();
    let mut rest = path;
    while let Some(char) = rest.chars().next() {
        let byte = rest.get(1..3).filter(|_| char == '%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.map(char::from).filter(|char| wanted(*char)) {
            Some(decoded) => {
                text.push(decoded);
                rest = &rest[3..];
            }
            None => {
                text.push(char);
                rest = &rest[char.len_utf8()..];
            }
        }
    }
    text
}

fn bytes(path: &str) -> Vec<u8> {
    path.chars().map(|char| u8::try_from(u32::from(char)).unwrap()).collect()
}

fn any_path() -> impl Strategy<Value = String> {
    let pieces = [
        "/",
        "/",
        "/",
        "a",
        "a",
        "b",
        "c",
        ".",
        "..",
        "%2e",
        "%2F",
        "%5c",
        "\\",
        ";",
        ";x",
        "%3b",
        "//",
        "%252e",
        "%252f",
        "%25",
        "25",
        "%61",
        "%41",
        "%40",
        "@",
        "%20",
        "%3f",
        "%23",
        "\u{c0}\u{ae}",
        "%c0%af",
        "%c3%bc",
        "2f",
        "4",
        "1",
    ];
    vec(select(pieces.to_vec()), 0..10).prop_map(|pieces| format!("/{}", pieces.concat()))
}

fn any_route() -> impl Strategy<Value = Route> {
    let access = prop_oneof![Just(RouteAccess::Public), Just(RouteAccess::Agents), Just(RouteAccess::Deny)];
    let tier = prop_oneof![Just(None), Just(Some(Tier::Bronze)), Just(Some(Tier::Gold))];
    let path = "(/[abc]|/[ab]?\\*[abc4]?|/a\\.\\*|/a@b|/\\*@\\*){1,3}/?\\*?";
    (path, access, tier, any::<bool>()).prop_filter_map("a pattern", |(path, access, min_tier, upgrades)| {
        let path = PathPattern::parse(&path).ok()?;
        let (methods, upstreams) = (Vec::new(), Vec::new());
        Some(Route {
            path,
            methods,
            access,
            min_tier,
            requests_per_minute: None,
            bot_requests_per_minute: None,
            upstreams,
            upgrades,
            mcp: false,
            calls: CallPatterns::default(),
        })
    })
}

/// What the tenant's first matching rule says about exactly this text.
fn literally(tenant: &Tenant, path: &[u8]) -> Decision {
    let at = tenant.routes.iter().position(|route| route.path.matches(path));
    ruled(tenant, at)
}

fn strictness(access: RouteAccess) -> u8 {
    match access {
        RouteAccess::Public => 0,
        RouteAccess::Agents => 1,
        RouteAccess::Deny => 2,
    }
}

proptest! {
    #![proptest_config(cases_times(4))]

    // threat: Gate and upstream see different paths or hosts
    #[test]
    fn a_request_satisfies_the_rule_of_every_reading_of_its_path(
        routes in vec(any_route(), 0..5),
        path in any_path(),
        steps in vec(step(), 0..8),
    ) {
        let tenant = tenant(Tier::Silver, routes);
        let decision = decide(&tenant, "GET", &bytes(&path));
        let mut reading = path.clone();
        for step in steps {
            reading = apply(step, &reading);
            let demanded = literally(&tenant, &bytes(&reading));
            prop_assert!(strictness(decision.access) >= strictness(demanded.access), "{} as {}", path, reading);
            if decision.access == RouteAccess::Deny {
                continue;
            }
            if demanded.access == RouteAccess::Agents {
                prop_assert!(decision.min_tier >= demanded.min_tier, "{} as {}", path, reading);
            }
            prop_assert!(demanded.upgrades || !decision.upgrades, "{} as {}", path, reading);
        }
    }

    #[test]
    fn no_request_is_too_strange_to_be_decided(method in any::<String>(), path in vec(any::<u8>(), 0..64)) {
        let path = [b"/", path.as_slice()].concat();
        let _ = decide(&shop(), &method, &path);
        let _ = decide(&shop(), &method, &path[1..]);
    }
}

#[test]
fn a_public_path_is_public_by_the_same_route_when_all_is_decoded_and_resolved() {
    let public = Cell::new(0);
    // Wide routes that are public, and escapes that are mostly honest: paths are hardly ever public where all is random.
    let wide = select(vec!["/*", "/a", "/a*", "/b/*", "/*@*", "/c/*/a"]);
    let wide = wide.prop_map(|pattern| route(pattern, RouteAccess::Public));
    let routes = (vec(any_route(), 0..2), wide, vec(any_route(), 0..2));
    let routes = routes.prop_map(|(before, wide, after)| [before, vec![wide], after].concat());
    let path = "(/(a|b|c|%61|%62|a@b|a%40b|%41|4|\\.a|a%2e|a;x|%2f|\\.\\.)?){1,4}";
    let config = Config { failure_persistence: None, ..cases_times(4) };
    let checked = TestRunner::new(config).run(&(routes, path), |(routes, path)| {
        let tenant = tenant(Tier::Silver, routes);
        let decision = decide(&tenant, "GET", &bytes(&path));
        if decision.access == RouteAccess::Public {
            let decoded = (0..16).fold(path.clone(), |path, _| apply(Step::Decode, &path));
            let normal = [
                Step::ReadOverlong,
                Step::CutQuery,
                Step::TurnBackslashes,
                Step::CutParameters,
                Step::TrimNames,
                Step::JoinSlashes,
                Step::ResolveDots,
            ]
            .into_iter()
            .fold(decoded, |path, step| apply(step, &path));
            prop_assert_eq!(literally(&tenant, &bytes(&normal)), decision, "{} as {}", path, normal);
            public.set(public.get() + 1);
        }
        Ok(())
    });
    checked.unwrap();
    // Some 70 of the usual number of cases: so few happen in none of a billion runs.
    assert!(public.get() > 20, "{} public paths were met", public.get());
}

/// So many times the usual number of cases, which `PROPTEST_CASES` sets.
fn cases_times(factor: u32) -> Config {
    let usual = Config::default();
    Config { cases: usual.cases * factor, ..usual }
}
