//! Which rule of a tenant a request falls under.
//!
//! The first route that takes the path and the method counts. What a rule demands must hold for the path as *any* server
//! behind us may read it: where readings differ, nothing is loosened, and every rule that could be meant has its say.

use crate::domain::path::{self, Reading};
use crate::domain::tenant::{Route, RouteAccess, Tenant};
use crate::domain::tier::Tier;

/// Methods that no tenant gets. CONNECT opens tunnels, and TRACE shows what only upstreams may see.
pub const NEVER_FORWARDED: [&str; 2] = ["CONNECT", "TRACE"];

/// What a request must satisfy, and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Who may pass.
    pub access: RouteAccess,
    /// The lowest tier that passes where agents may.
    pub min_tier: Tier,
    /// Whether an upgrade to WebSocket is passed on.
    pub upgrades: bool,
    /// The index of the route whose upstreams are used; nothing: the tenant's own.
    pub route: Option<usize>,
}

/// Decides by method and path. The path is the one that is forwarded, raw and without its query.
///
/// Methods are compared as they are written (RFC 9110, section 9.1), and a rule for `GET` is none for `HEAD`.
/// A path that no honest request has is denied: [`Reading::Refused`] says which. The work is bounded by
/// [`path::PATH_BYTES_MAX`], [`path::DECODINGS_MAX`] and the number of routes.
pub fn decide(tenant: &Tenant, method: &str, path: &[u8]) -> Decision {
    match read(tenant, method, path) {
        Reading::Plain => ruled(tenant, first(tenant, method, path)),
        reading @ (Reading::Escaped(_) | Reading::Ambiguous(_) | Reading::Anywhere) => {
            let rules = tenant.routes.iter().filter(|route| may_be_meant(route, method, path, &reading));
            strictest(tenant, first(tenant, method, path), rules)
        }
        Reading::Refused => Decision { access: RouteAccess::Deny, ..ruled(tenant, None) },
    }
}

/// How a request's path reads to [`decide`], and the routes that may be meant, in their order: of a plain path the first
/// counts, of another one all of them.
pub fn candidates<'a>(tenant: &'a Tenant, method: &str, path: &[u8]) -> (Reading, Vec<&'a Route>) {
    let reading = read(tenant, method, path);
    let routes = tenant.routes.iter().filter(|route| may_be_meant(route, method, path, &reading)).collect();
    (reading, routes)
}

/// How a path reads as far as the tenant's rules go.
fn read(tenant: &Tenant, method: &str, path: &[u8]) -> Reading {
    match path::read(path) {
        // Decoding only ever adds rules that match. If the first is the same before and after, it is so in between.
        Reading::Escaped(decoded) if first(tenant, method, path) == first(tenant, method, &decoded) => {
            Reading::Plain
        }
        reading @ (Reading::Plain
        | Reading::Escaped(_)
        | Reading::Ambiguous(_)
        | Reading::Anywhere
        | Reading::Refused) => reading,
    }
}

fn first(tenant: &Tenant, method: &str, path: &[u8]) -> Option<usize> {
    tenant.routes.iter().position(|route| has_method(route, method) && route.path.matches(path))
}

fn may_be_meant(route: &Route, method: &str, path: &[u8], reading: &Reading) -> bool {
    has_method(route, method)
        && match reading {
            Reading::Plain => route.path.matches(path),
            Reading::Escaped(decoded) => route.path.matches(decoded),
            Reading::Ambiguous(normal) => route.path.matches(path) || route.path.may_match(normal),
            Reading::Anywhere => true,
            Reading::Refused => false,
        }
}

fn has_method(route: &Route, method: &str) -> bool {
    route.methods.is_empty() || route.methods.iter().any(|own| **own == *method)
}

/// What one rule says, or without one the tenant.
fn ruled(tenant: &Tenant, at: Option<usize>) -> Decision {
    let route = at.and_then(|at| tenant.routes.get(at));
    Decision {
        access: route.map_or(RouteAccess::Agents, |route| route.access),
        min_tier: route.and_then(|route| route.min_tier).unwrap_or(tenant.min_tier),
        upgrades: route.is_some_and(|route| route.upgrades),
        route: at,
    }
}

/// What the tenant and all of some rules demand together, with nothing loosened. The upstreams are those of the rule that
/// the raw path falls under.
fn strictest<'a>(tenant: &Tenant, raw: Option<usize>, rules: impl Iterator<Item = &'a Route>) -> Decision {
    let mut decision = Decision { route: raw, ..ruled(tenant, None) };
    for rule in rules {
        decision.min_tier = decision.min_tier.max(rule.min_tier.unwrap_or(tenant.min_tier));
        if rule.access == RouteAccess::Deny {
            decision.access = RouteAccess::Deny;
        }
    }
    decision
}

#[cfg(test)]
mod tests;
