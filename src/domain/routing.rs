//! Which rule of a tenant a request falls under.
//!
//! The first route that takes the path and the method counts. What a rule demands must hold for the path as *any* server
//! behind us may read it: where readings differ, nothing is loosened, and every rule that could be meant has its say.

use crate::domain::path::{self, PathForm};
use crate::domain::tenant::{Route, RouteAccess, Tenant};
use crate::domain::{mcp::Call, tier::Tier};

/// Methods that no tenant gets. CONNECT opens tunnels, and TRACE shows what only upstreams may see.
pub const NEVER_FORWARDED: [&str; 2] = ["CONNECT", "TRACE"];

/// The method of requests with messages of MCP.
pub const MCP_METHOD: &str = "POST";

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

/// A request as rules see it.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    method: &'a str,
    /// The path that is forwarded, raw and without its query.
    path: &'a [u8],
    /// How that reads.
    form: &'a PathForm,
    /// The call of MCP that it makes.
    call: Option<&'a Call<'a>>,
}

/// Decides by method and path. The path is the one that is forwarded, raw and without its query.
///
/// Methods are compared as they are written (RFC 9110, section 9.1), and a rule for `GET` is none for `HEAD`.
/// A path that no honest request has is denied: [`PathForm::Invalid`] says which. The work is bounded by
/// [`path::PATH_BYTES_MAX`], [`path::DECODINGS_MAX`] and the number of routes.
pub fn decide(tenant: &Tenant, method: &str, path: &[u8]) -> Decision {
    decide_asked(tenant, Asked { method, path, form: &path::read(path), call: None })
}

/// Decides about calls of MCP that one request makes: everything that is demanded for each of them.
pub fn decide_calls(tenant: &Tenant, path: &[u8], calls: &[Call<'_>]) -> Decision {
    decide_each(tenant, path, calls).reduce(both).unwrap_or_else(|| decide(tenant, MCP_METHOD, path))
}

/// Decides about each of these calls by itself. The path is read once.
pub fn decide_each(tenant: &Tenant, path: &[u8], calls: &[Call<'_>]) -> impl Iterator<Item = Decision> {
    let form = path::read(path);
    calls.iter().map(move |call| {
        decide_asked(tenant, Asked { method: MCP_METHOD, path, form: &form, call: Some(call) })
    })
}

/// True if a path may be meant to be that of an MCP endpoint.
pub fn is_mcp(tenant: &Tenant, path: &[u8]) -> bool {
    tenant.mcp || {
        let form = path::read(path);
        let mut endpoints = tenant.routes.iter().filter(|route| route.mcp);
        endpoints.any(|route| route.path.matches(path) || is_at(route, path, &form))
    }
}

/// How a request's path reads to [`decide`], and the routes that may be meant, in their order: of a plain path the first
/// counts, of another one all of them.
pub fn candidates<'a>(
    tenant: &'a Tenant,
    method: &str,
    path: &[u8],
    call: Option<&Call<'_>>,
) -> (PathForm, Vec<&'a Route>) {
    let form = path::read(path);
    let asked = Asked { method, path, form: &form, call };
    let form = read(tenant, asked);
    let routes = tenant.routes.iter().filter(|route| may_be_meant(route, asked, form)).collect();
    (form.clone(), routes)
}

fn decide_asked(tenant: &Tenant, asked: Asked<'_>) -> Decision {
    match read(tenant, asked) {
        PathForm::Plain => ruled(tenant, first(tenant, asked)),
        form @ (PathForm::Escaped(_) | PathForm::Ambiguous(_) | PathForm::Anywhere) => {
            let rules = tenant.routes.iter().filter(|route| may_be_meant(route, asked, form));
            strictest(tenant, first(tenant, asked), rules)
        }
        PathForm::Invalid => Decision { access: RouteAccess::Deny, ..ruled(tenant, None) },
    }
}

/// How a path reads as far as the tenant's rules go.
fn read<'a>(tenant: &Tenant, asked: Asked<'a>) -> &'a PathForm {
    match asked.form {
        // Decoding only ever adds rules that match. If the first is the same before and after, it is so in between.
        PathForm::Escaped(decoded)
            if first(tenant, asked) == first(tenant, Asked { path: decoded, ..asked }) =>
        {
            &PathForm::Plain
        }
        form @ (PathForm::Plain
        | PathForm::Escaped(_)
        | PathForm::Ambiguous(_)
        | PathForm::Anywhere
        | PathForm::Invalid) => form,
    }
}

fn first(tenant: &Tenant, asked: Asked<'_>) -> Option<usize> {
    tenant.routes.iter().position(|route| takes(route, asked) && route.path.matches(asked.path))
}

fn may_be_meant(route: &Route, asked: Asked<'_>, form: &PathForm) -> bool {
    takes(route, asked) && is_at(route, asked.path, form)
}

/// True if a path that reads so may be one of a route's.
fn is_at(route: &Route, path: &[u8], form: &PathForm) -> bool {
    match form {
        PathForm::Plain => route.path.matches(path),
        PathForm::Escaped(decoded) => route.path.matches(decoded),
        PathForm::Ambiguous(normal) => route.path.matches(path) || route.path.may_match(normal),
        PathForm::Anywhere => true,
        PathForm::Invalid => false,
    }
}

/// True if a route takes requests that ask so, wherever.
fn takes(route: &Route, Asked { method, call, .. }: Asked<'_>) -> bool {
    if route.calls.is_empty() {
        route.methods.is_empty() || route.methods.iter().any(|own| **own == *method)
    } else {
        call.is_some_and(|call| route.calls.take(call))
    }
}

/// Everything that both demand. The route is the first one's.
fn both(one: Decision, other: Decision) -> Decision {
    Decision {
        access: one.access.max(other.access),
        min_tier: one.min_tier.max(other.min_tier),
        upgrades: false,
        route: one.route,
    }
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
        decision.access = decision.access.max(rule.access);
    }
    decision
}

#[cfg(test)]
mod tests;
