//! Finds what belongs to a host among any number of host patterns.
//!
//! The cost of a look-up follows the length of the host, not the number of patterns: one probe for the host itself and
//! at most one for each of its labels.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::domain::host::{HostPattern, of_authority};

/// One pattern was given two values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the host {0} stands twice")]
pub struct DuplicateHost(pub HostPattern);

/// Hosts come out of the configuration, so nobody can choose them for their hashes.
type Table<T> = HashMap<Box<str>, T, FixedState>;

/// Values by host. The most precise pattern counts: the host itself, then the longest `*.suffix`, then `*`.
#[derive(Debug, Clone)]
pub struct HostMap<T> {
    exact: Table<T>,
    below: Table<T>,
    /// The longest key of `below`, in bytes: what is longer need not be looked for.
    below_bytes_max: usize,
    any: Option<T>,
}

impl<T> HostMap<T> {
    /// Collects patterns and their values.
    /// Error: [`DuplicateHost`] with the first pattern that stands twice.
    pub fn new(entries: impl IntoIterator<Item = (HostPattern, T)>) -> Result<Self, DuplicateHost> {
        let mut map = Self::default();
        for (pattern, value) in entries {
            let replaced = match pattern.clone() {
                HostPattern::Exact(name) => map.exact.insert(name, value),
                HostPattern::Below(name) => {
                    map.below_bytes_max = map.below_bytes_max.max(name.len());
                    map.below.insert(name, value)
                }
                HostPattern::Any => map.any.replace(value),
            };
            if replaced.is_some() {
                return Err(DuplicateHost(pattern));
            }
        }
        Ok(map)
    }

    /// The value for an authority (`Host` header or `:authority`); nothing for what is not a host, also when there is a
    /// value for `*`. Allocates only for capitals and IPv6 addresses.
    pub fn find(&self, authority: &str) -> Option<&T> {
        let host = of_authority(authority)?;
        self.exact.get(&*host).or_else(|| self.find_below(&host)).or(self.any.as_ref())
    }

    fn find_below(&self, host: &str) -> Option<&T> {
        let suffixes = std::iter::successors(host.split_once('.'), |(_, suffix)| suffix.split_once('.'));
        let mut short = suffixes.filter(|(_, suffix)| suffix.len() <= self.below_bytes_max);
        short.find_map(|(_, suffix)| self.below.get(suffix))
    }
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: Table::default(), below: Table::default(), below_bytes_max: 0, any: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::{DuplicateHost, HostMap};
    use crate::domain::host::{HostPattern, of_authority};

    fn map(patterns: &[&str]) -> HostMap<String> {
        let entries = patterns.iter().map(|text| (HostPattern::parse(text).unwrap(), (*text).to_owned()));
        HostMap::new(entries).unwrap()
    }

    #[test]
    fn the_most_precise_pattern_counts() {
        let map = map(&["*", "*.acme.example", "*.eu.acme.example", "api.acme.example", "[::1]"]);
        for (authority, pattern) in [
            ("api.acme.example", "api.acme.example"),
            ("API.ACME.EXAMPLE.:443", "api.acme.example"),
            ("www.acme.example", "*.acme.example"),
            ("a.b.acme.example", "*.acme.example"),
            ("x.api.acme.example", "*.acme.example"),
            ("eu.acme.example", "*.acme.example"),
            ("api.eu.acme.example", "*.eu.acme.example"),
            ("acme.example", "*"),
            ("notacme.example", "*"),
            ("[::1]:80", "[::1]"),
            ("[::2]", "*"),
        ] {
            assert_eq!(map.find(authority).map(String::as_str), Some(pattern), "{authority}");
        }
    }

    #[test]
    fn without_a_wildcard_strangers_find_nothing() {
        let map = map(&["api.acme.example", "*.acme.dev"]);
        for authority in ["acme.dev", "acme.example", "dev", "other.example", "x.api.acme.example"] {
            assert_eq!(map.find(authority), None, "{authority}");
        }
        assert_eq!(HostMap::<()>::default().find("a"), None);
    }

    // threat: Gate and upstream see different paths or hosts
    #[test]
    fn a_malformed_authority_finds_nothing_even_where_every_host_is_taken() {
        let map = map(&["*", "*.acme.example"]);
        for authority in [
            "",
            "*",
            "a.acme.example\r\nHost: b",
            "a.acme.example,b",
            "user@a.acme.example",
            "a..acme.example",
            "a:b:c",
        ] {
            assert_eq!(map.find(authority), None, "{authority:?}");
        }
    }

    #[test]
    fn a_pattern_that_stands_twice_is_named() {
        for (first, second) in [("a.example", "A.example"), ("*.a", "*.a"), ("*", "*"), ("[::1]", "[0::1]")] {
            let entries = [first, "b", second].map(|text| (HostPattern::parse(text).unwrap(), ()));
            let DuplicateHost(named) = HostMap::new(entries).unwrap_err();
            assert_eq!(named, HostPattern::parse(second).unwrap());
        }
        assert_eq!(DuplicateHost(HostPattern::Below("a".into())).to_string(), "the host *.a stands twice");
    }

    /// Looks at every pattern.
    fn reference(patterns: &[String], authority: &str) -> Option<String> {
        let host = of_authority(authority)?;
        let suffixes = patterns.iter().filter_map(|pattern| pattern.strip_prefix("*."));
        let below = suffixes.filter(|suffix| host.ends_with(&format!(".{suffix}")));
        let longest = below.max_by_key(|suffix| suffix.len()).map(|suffix| format!("*.{suffix}"));
        let has = |text: &str| patterns.iter().any(|pattern| pattern == text);
        if has(&host) { Some(host.into()) } else { longest.or_else(|| has("*").then(|| "*".to_owned())) }
    }

    proptest! {
        #[test]
        fn a_look_up_agrees_with_trying_every_pattern(
            mut patterns in vec("(\\*\\.)?[ab](\\.[ab]){0,2}|\\*", 0..12),
            authority in "[abAB*](\\.?[ab]){0,4}\\.?(:8)?",
        ) {
            patterns.sort();
            patterns.dedup();
            let refs: Vec<&str> = patterns.iter().map(String::as_str).collect();
            prop_assert_eq!(map(&refs).find(&authority).cloned(), reference(&patterns, &authority));
        }
    }
}
