//! Routes that no request gets to.

use proptest::prelude::{Strategy, prop, proptest};
use toml::{Table, Value};

use super::{file_of, problems, tenant_with};
use crate::domain::PathPattern;

/// Whether each of the routes, a path and its methods, is accepted.
fn reached(routes: &[(&str, &[&str])]) -> Vec<bool> {
    let route = |(path, methods): &(&str, &[&str])| {
        let mut route = Table::from_iter([("path".to_owned(), Value::from(*path))]);
        if !methods.is_empty() {
            route.insert("methods".to_owned(), methods.to_vec().into());
        }
        route
    };
    let mut tenant = tenant_with(&[]);
    tenant.insert("routes".to_owned(), routes.iter().map(route).collect::<Vec<_>>().into());
    let found = problems(&file_of(vec![tenant]), &[]);
    let is_reached = |number: usize| {
        let never = format!("tenants[1].routes[{number}]: is never reached; ");
        !found.iter().any(|line| line.starts_with(&never))
    };
    let reached: Vec<bool> = (1..=routes.len()).map(is_reached).collect();
    assert_eq!(found.len(), reached.iter().filter(|is_reached| !**is_reached).count(), "{found:?}");
    reached
}

#[test]
fn the_same_path_and_methods_again_are_never_reached() {
    assert_eq!(reached(&[("/a", &[]), ("/a", &[])]), [true, false]);
    assert_eq!(reached(&[("/a", &[]), ("/a", &["GET"])]), [true, false]);
    assert_eq!(reached(&[("/a", &["GET"]), ("/a", &["GET"])]), [true, false]);
    assert_eq!(reached(&[("/a", &["GET", "PUT"]), ("/a", &["PUT"])]), [true, false]);
    assert_eq!(reached(&[("/a", &["GET"]), ("/a", &["PUT"]), ("/a", &["PUT", "GET"])]), [true, true, false]);
    assert_eq!(reached(&[("/a", &[]), ("/b", &[]), ("/a/", &[])]), [true, true, false], "a final slash");
    assert_eq!(reached(&[("/a*/b", &[]), ("/a*/b", &[])]), [true, false]);
}

// threat: A wrong configuration runs quietly
#[test]
fn a_path_in_a_folder_that_is_taken_is_never_reached() {
    assert_eq!(reached(&[("/a", &[]), ("/a/b", &[])]), [true, false]);
    assert_eq!(reached(&[("/a/*", &[]), ("/a/b", &["GET"])]), [true, false]);
    assert_eq!(reached(&[("/", &[]), ("/a", &[]), ("/*", &[]), ("/a*/b", &[])]), [true, false, false, false]);
    assert_eq!(
        reached(&[("/*", &["GET"]), ("/a", &["PUT"]), ("/a/b", &["GET", "PUT"])]),
        [true, true, false]
    );
}

#[test]
fn calls_behind_all_messages_of_their_path_are_never_reached() {
    assert_eq!(reached(&[("/a", &["tools/call"]), ("/a", &["ping", "tools/call"]), ("/a", &[])]), [true; 3]);
    assert_eq!(reached(&[("/a", &["POST"]), ("/a", &["tools/call"])]), [true, false]);
    assert_eq!(reached(&[("/a", &[]), ("/a", &["ping"])]), [true, false]);
    assert_eq!(reached(&[("/a", &["GET"]), ("/a", &["ping"]), ("/a", &["ping"])]), [true, true, false]);
}

#[test]
fn what_still_takes_something_is_accepted() {
    assert_eq!(reached(&[("/a", &["GET"]), ("/a", &[]), ("/b", &["PUT"])]), [true; 3]);
    assert_eq!(reached(&[("/a", &["GET"]), ("/a", &["GET", "PUT"])]), [true; 2]);
    assert_eq!(reached(&[("/a/b", &[]), ("/a", &[]), ("/", &[])]), [true; 3], "the narrow one first");
    assert_eq!(reached(&[("/a/*", &[]), ("/a", &[])]), [true; 2], "the folder itself");
    assert_eq!(reached(&[("/a", &[]), ("/ab", &[]), ("/a*", &[])]), [true; 3]);
    assert_eq!(reached(&[("/a*", &[]), ("/a*/b", &[]), ("/a*/", &[])]), [true; 3]);
}

/// Few names, so that patterns meet.
fn patterns() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(
        "(/(a|b|ab|\\*|a\\*)){0,3}/?".prop_filter("begins with /", |path| !path.is_empty()),
        1..6,
    )
}

proptest! {
    #[test]
    fn no_path_gets_to_a_route_that_is_refused(routes in patterns(), path in "(/(a|b|ab|c)?){1,4}") {
        let with_methods: Vec<(&str, &[&str])> = routes.iter().map(|route| (route.as_str(), &[][..])).collect();
        let reached = reached(&with_methods);
        let takes = |route: &String| PathPattern::parse(route).unwrap().matches(path.as_bytes());
        if let Some(first) = routes.iter().position(takes) {
            assert!(reached[first], "{path} gets to {first} of {routes:?}");
        }
    }
}
