//! Which rule of a tenant a request falls under.
//!
//! The first route that takes the path and the method counts. What a rule demands must hold for the path as *any* server
//! behind us may read it: where readings differ, nothing is loosened, and every rule that could be meant has its say.

use crate::domain::path::{self, Reading};
use crate::domain::tenant::{Route, RouteAccess, Tenant};
use crate::domain::tier::Tier;

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
#[must_use]
pub fn decide(tenant: &Tenant, method: &str, path: &[u8]) -> Decision {
    let first = |path: &[u8]| tenant.routes.iter().position(|route| takes(route, method, path));
    let strictest = |may_be_meant: &dyn Fn(&Route) -> bool| {
        let rules = tenant.routes.iter().filter(|route| has_method(route, method) && may_be_meant(route));
        strictest(tenant, first(path), rules)
    };
    match path::read(path) {
        Reading::Plain => ruled(tenant, first(path)),
        // Decoding only ever adds rules that match. If the first is the same before and after, it is so in between.
        Reading::Escaped(decoded) if first(path) == first(&decoded) => ruled(tenant, first(path)),
        Reading::Escaped(decoded) => strictest(&|route| route.path.matches(&decoded)),
        Reading::Ambiguous(normal) => {
            strictest(&|route| route.path.matches(path) || route.path.may_match(&normal))
        }
        Reading::Anywhere => strictest(&|_| true),
        Reading::Refused => Decision { access: RouteAccess::Deny, ..ruled(tenant, None) },
    }
}

fn takes(route: &Route, method: &str, path: &[u8]) -> bool {
    has_method(route, method) && route.path.matches(path)
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
