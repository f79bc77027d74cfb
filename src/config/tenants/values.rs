//! Values that tenants and routes both have.

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeInclusive;

use crate::config::reader::Reader;
use crate::config::written::quoted;
use crate::domain::tier::{PASSING_TIERS, Tier};
use crate::domain::upstream::Upstream;

/// How many upstreams a tenant or a route may have.
pub(super) const UPSTREAMS_MAX: usize = 64;

/// The tiers that may be asked for; tier 0 never passes.
pub(super) const TIERS: RangeInclusive<i64> = 1..=4;

pub(super) fn upstream(text: &str) -> Result<Upstream, String> {
    Upstream::parse(text).map_err(|_| {
        format!(
            "is {}; write a host and a port, such as \"127.0.0.1:9000\", or http://, https:// or h2c:// and a host",
            quoted(text)
        )
    })
}

pub(super) fn tier(number: u8) -> Option<Tier> {
    PASSING_TIERS.into_iter().find(|tier| tier.number() == number)
}

/// The items of a list of which each stands there once.
pub(super) fn distinct<T: Clone + Eq + Hash + Display>(
    reader: &mut Reader,
    path: &'static str,
    items: Vec<T>,
) -> Option<Vec<T>> {
    let mut seen = HashSet::new();
    let checked = items.into_iter().map(|item| {
        if seen.insert(item.clone()) {
            return Ok(item);
        }
        Err(format!("is {} again; write each once", quoted(&item.to_string())))
    });
    reader.check_items(path, checked)
}
