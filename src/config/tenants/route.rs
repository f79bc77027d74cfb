//! The keys of one route, and which routes none ever gets to.

use std::collections::{BTreeSet, HashMap};

use crate::config::choice::choice;
use crate::config::reader::Reader;
use crate::config::tenants::neighbours::Neighbours;
use crate::config::tenants::values::{TIERS, distinct, tier, upstreams};
use crate::config::tiers::REQUESTS_PER_MINUTE;
use crate::config::written::quoted;
use crate::domain::path::PathPattern;
use crate::domain::quota::Quota;
use crate::domain::routing::NEVER_FORWARDED;
use crate::domain::tenant::{Route, RouteAccess};

/// How many methods a route may name.
const METHODS_MAX: usize = 32;

/// The longest method, in bytes.
const METHOD_BYTES_MAX: usize = 32;

const LIMIT: &str = "requests_per_minute";

const ACCESS: [(&str, RouteAccess); 3] =
    [("agents", RouteAccess::Agents), ("public", RouteAccess::Public), ("deny", RouteAccess::Deny)];

/// Reads one route; `taken` is what those before it take.
pub(super) fn read(reader: &mut Reader, taken: &mut Taken, neighbours: &Neighbours) -> Option<Route> {
    let path = reader.required_text("path", path);
    let access = reader.text("access", "agents", choice(&ACCESS));
    let min_tier = reader.optional_integer("min_tier", &TIERS).and_then(tier);
    let methods = reader
        .optional_texts("methods", METHODS_MAX, method)
        .and_then(|methods| distinct(reader, "methods", methods));
    let requests_per_minute = reader.optional_integer(LIMIT, &REQUESTS_PER_MINUTE).map(Quota::per_minute);
    let upstreams = upstreams(reader, neighbours, false);
    let upgrades = reader.boolean("upgrades", false);

    if reader.is_given("min_tier") && access.is_some_and(|access| access != RouteAccess::Agents) {
        reader.report(&["min_tier"], "has no meaning without agents; remove it, or write access \"agents\"");
    }
    if reader.is_given(LIMIT) && access.is_some_and(|access| access != RouteAccess::Public) {
        let phrase =
            "has no meaning where agents have limits of their own; remove it, or write access \"public\"";
        reader.report(&[LIMIT], phrase);
    }
    let is_denied = access == Some(RouteAccess::Deny);
    if reader.is_given("upstreams") && is_denied {
        reader.report(&["upstreams"], DENIED);
    }
    if upgrades == Some(true) && is_denied {
        reader.report(&["upgrades"], DENIED);
    }
    let (text, path) = path?;
    let methods = methods?;
    if let Some(takers) = taken.take(&text, &methods) {
        let takers: Vec<String> = takers.iter().map(|number| format!("routes[{number}]")).collect();
        let phrase =
            format!("is never reached; {} before it take all of its paths and methods", takers.join(" and "));
        reader.report_table(phrase);
    }
    Some(Route {
        path,
        methods,
        access: access?,
        min_tier,
        requests_per_minute,
        upstreams: upstreams?,
        upgrades: upgrades?,
    })
}

const DENIED: &str = "has no meaning with access \"deny\", which forwards nothing; remove it";

/// The methods of paths that are taken already, each by a route with this number.
#[derive(Default)]
pub(super) struct Taken {
    routes: usize,
    paths: HashMap<String, TakenMethods>,
}

#[derive(Default)]
struct TakenMethods {
    all: Option<usize>,
    some: HashMap<Box<str>, usize>,
}

impl Taken {
    /// Takes them for the next route; the numbers of the routes that have left nothing of them.
    fn take(&mut self, path: &str, methods: &[Box<str>]) -> Option<BTreeSet<usize>> {
        let path = normal(path);
        let hiding: Vec<&TakenMethods> = wider(path).filter_map(|wide| self.paths.get(&wide)).collect();
        let all = hiding.iter().find_map(|taken| taken.all);
        let taker = |method| hiding.iter().find_map(|taken| taken.some.get(method).copied());
        let takers = || methods.iter().map(taker).collect::<Option<BTreeSet<_>>>();
        let nothing_left =
            all.map(|route| [route].into()).or_else(|| takers().filter(|routes| !routes.is_empty()));
        self.routes += 1;
        let taken = self.paths.entry(path.to_owned()).or_default();
        if methods.is_empty() {
            taken.all.get_or_insert(self.routes);
        }
        for method in methods {
            taken.some.entry(method.clone()).or_insert(self.routes);
        }
        nothing_left
    }
}

/// A final slash means nothing in a pattern without `*`.
fn normal(path: &str) -> &str {
    path.strip_suffix('/').filter(|path| !path.contains('*')).unwrap_or(path)
}

/// Patterns that take whatever this one takes: itself, and the folders that it stands in, without and with a final
/// `/*`. Others may do so too; these are what people write.
fn wider(path: &str) -> impl Iterator<Item = String> {
    let folders = path.match_indices('/').filter_map(|(end, _)| path.get(..end));
    let folders = folders.take_while(|folder| !folder.contains('*'));
    std::iter::once(path.to_owned())
        .chain(folders.flat_map(|folder| [folder.to_owned(), format!("{folder}/*")]))
}

/// The pattern, with its text.
fn path(text: &str) -> Result<(String, PathPattern), String> {
    let pattern = PathPattern::parse(text).map_err(|why| {
        format!("is {}, which {why}; write a path, such as \"/v1\" or \"/public/*\"", quoted(text))
    })?;
    Ok((text.to_owned(), pattern))
}

/// A token of RFC 9110, section 5.6.2, without lower-case letters: methods are compared byte by byte, and those in use
/// are upper case. One that is never forwarded would be a rule for nothing.
pub(super) fn method(text: &str) -> Result<Box<str>, String> {
    if NEVER_FORWARDED.contains(&text) {
        return Err(format!("is {}, which is never forwarded; remove it", quoted(text)));
    }
    let plain =
        |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if (1..=METHOD_BYTES_MAX).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.into())
    } else {
        Err(format!("is {}; write a method in upper case, such as \"GET\"", quoted(text)))
    }
}
