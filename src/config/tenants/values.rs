//! Values that tenants and routes both have.

use std::collections::{HashMap, HashSet};
use std::{fmt::Display, hash::Hash};

use crate::config::written::{quoted, valid};
use crate::config::{reader::Reader, tenants::context::Context};
use crate::domain::Upstream;

/// How many upstreams a tenant or a route may have.
const UPSTREAMS_MAX: usize = 64;

/// The upstreams of a tenant, or those that a route may have instead.
pub(super) fn upstreams(reader: &mut Reader, context: &Context, are_required: bool) -> Option<Vec<Upstream>> {
    let upstreams = if are_required {
        reader.required_texts("upstreams", UPSTREAMS_MAX, upstream)
    } else {
        reader.optional_texts("upstreams", UPSTREAMS_MAX, upstream)
    };
    let mut seen: HashMap<Upstream, Upstream> = HashMap::new();
    let checked = upstreams?.into_iter().map(|item| {
        context.check_upstream(&item)?;
        match seen.insert(item.alone(), item.clone()) {
            Some(first) => Err(format!(
                "is \"{item}\", the same upstream as \"{first}\"; write each once, with its weight"
            )),
            None => Ok(item),
        }
    });
    reader.check_items("upstreams", checked)
}

fn upstream(text: &str) -> Result<Upstream, String> {
    let wanted = "a host and a port, such as \"127.0.0.1:9000\", or http://, https:// or h2c:// and a host";
    valid(text, Upstream::parse(text), wanted)
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
