//! The documents about the way in that the gateway has at a tenant's hosts. Must not know requests.

use crate::domain::{Decision, HostPattern, PathForm, RouteAccess, Tenant, path, routing};
use crate::error::Error;
use crate::wire::{ERC8128_PATH, KEY_SET_PATH, METADATA_PATH, RULES_PATH};

/// Where clients of OAuth look for an authorization server (RFC 8414, section 3), before the path of a resource.
const LOGIN_PATHS: [&[u8]; 2] =
    [b"/.well-known/oauth-authorization-server", b"/.well-known/openid-configuration"];

/// The longest path of a resource that has metadata of its own, in bytes: whoever is refused makes us write no more.
const RESOURCE_BYTES_MAX: usize = 256;

/// A document about the way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Document<'a> {
    /// The rules of service and tenant.
    Rules,
    /// The public keys of assertions.
    KeySet,
    /// The terms of signed requests.
    SignedRequests,
    /// The metadata of the resource at this path, which is empty for the whole host.
    Metadata(&'a str),
}

/// The document that the gateway has at this path for the tenant. Routes that let everybody or nobody pass come first.
pub(super) fn document_at<'a>(
    tenant: &Tenant,
    access: RouteAccess,
    method: &str,
    path: &'a [u8],
) -> Option<Document<'a>> {
    if !tenant.discovery || access != RouteAccess::Agents || !matches!(method, "GET" | "HEAD") {
        return None;
    }
    if path == RULES_PATH.as_bytes() {
        return Some(Document::Rules);
    }
    if tenant.assertion && path == KEY_SET_PATH.as_bytes() {
        return Some(Document::KeySet);
    }
    if tenant.credentials.erc8128 && path == ERC8128_PATH.as_bytes() {
        return Some(Document::SignedRequests);
    }
    resource(path.strip_prefix(METADATA_PATH.as_bytes())?).map(Document::Metadata)
}

/// Refuses a client that looks for OAuth, or registers there without a credential of ours, where no route takes its request.
pub(super) fn check_login(
    tenant: &Tenant,
    decision: Decision,
    (method, path): (&str, &[u8]),
    shows_credential: impl FnOnce() -> bool,
) -> Result<(), Error> {
    let is_at = |at: &[u8]| matches!(path.strip_prefix(at), Some([] | [b'/', ..]));
    let is_unrouted = decision.route.is_none() && decision.access == RouteAccess::Agents && tenant.discovery;
    match method {
        "GET" | "HEAD" if is_unrouted && LOGIN_PATHS.into_iter().any(is_at) => Err(Error::NoLogin),
        "POST" if is_unrouted && path == b"/register" && !shows_credential() => Err(Error::NoLogin),
        _ => Ok(()),
    }
}

/// True if the tenant's configuration names this host, which is in normal form, and not only a wildcard that takes it.
pub(super) fn is_named(tenant: &Tenant, host: &str) -> bool {
    tenant.hosts.iter().any(|pattern| matches!(pattern, HostPattern::Exact(name) if **name == *host))
}

/// True if the gateway has a document for everybody at this path of the tenant's.
pub(super) fn is_shown(tenant: &Tenant, path: &str) -> bool {
    let access = routing::decide(tenant, "GET", path.as_bytes()).access;
    document_at(tenant, access, "GET", path.as_bytes()).is_some()
}

/// The path of a resource as it stands in its address, if every server reads it the same and it needs no escape there.
pub(super) fn resource(path: &[u8]) -> Option<&str> {
    if matches!(path, b"" | b"/") {
        return Some("");
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&()*+,=:@/".contains(&byte);
    let is_short = path.len() <= RESOURCE_BYTES_MAX;
    let is_usable = is_short && path.iter().copied().all(is_plain) && path::read(path) == PathForm::Plain;
    std::str::from_utf8(path).ok().filter(|_| is_usable)
}

#[cfg(test)]
mod tests {
    use super::{Document, RESOURCE_BYTES_MAX, check_login, document_at, resource};
    use crate::domain::{RouteAccess, Tenant, fixture, routing::decide};

    #[test]
    fn only_a_path_that_every_server_reads_alike_is_written_into_an_address() {
        let longest = format!("/{}", "a".repeat(RESOURCE_BYTES_MAX - 1));
        for path in ["/mcp", "/mcp/", "/v1/items:find", "/a.b/~c", &longest] {
            assert_eq!(resource(path.as_bytes()), Some(path));
        }
        assert_eq!((resource(b""), resource(b"/")), (Some(""), Some("")));
        let too_long = format!("{longest}a");
        for path in [
            "x", "//", "/a//b", "/../a", "/a/.", "/a%2fb", "/a%20b", "/a\"b", "/a\\b", "/a;b", "/a'b",
            "/a<b", "/\u{e9}", "/a\r\nb", "/a b", &too_long,
        ] {
            assert_eq!(resource(path.as_bytes()), None, "{path:?}");
        }
    }

    #[test]
    fn the_gateway_has_documents_where_agents_alone_would_pass_and_the_tenant_allows_it() {
        use RouteAccess::{Agents, Deny, Public};
        let (rules, metadata) =
            (&b"/.well-known/tiergate"[..], &b"/.well-known/oauth-protected-resource"[..]);
        let at = |access, method, path| document_at(&fixture::tenant(), access, method, path);
        assert_eq!(at(Agents, "GET", rules), Some(Document::Rules));
        assert_eq!(at(Agents, "HEAD", metadata), Some(Document::Metadata("")));
        let below = b"/.well-known/oauth-protected-resource/mcp";
        assert_eq!(at(Agents, "GET", below), Some(Document::Metadata("/mcp")));
        for (access, method) in [(Public, "GET"), (Deny, "GET"), (Agents, "POST"), (Agents, "OPTIONS")] {
            assert_eq!(at(access, method, rules), None, "{access:?} {method}");
            assert_eq!(at(access, method, metadata), None, "{access:?} {method}");
        }
        for path in
            ["/.well-known/tiergate/", "/.well-known/tiergatex", "/.well-known/oauth-protected-resourcex"]
        {
            assert_eq!(at(Agents, "GET", path.as_bytes()), None, "{path}");
        }
        let keys = b"/.well-known/jwks.json";
        assert_eq!(at(Agents, "GET", keys), None, "it asks for no assertions");
        let asserting = Tenant { assertion: true, ..fixture::tenant() };
        assert_eq!(document_at(&asserting, Agents, "GET", keys), Some(Document::KeySet));
        assert_eq!(document_at(&asserting, Public, "GET", keys), None, "its upstream has its own");
        let silent = Tenant { discovery: false, ..fixture::tenant() };
        assert_eq!(document_at(&silent, Agents, "GET", rules), None);
    }

    #[test]
    fn a_login_is_looked_for_at_the_paths_of_oauth_alone_and_never_by_whoever_shows_a_credential_to_register()
    {
        let (usual, silent) = (fixture::tenant(), Tenant { discovery: false, ..fixture::tenant() });
        for (method, path, shows, is_refused) in [
            ("GET", "/.well-known/oauth-authorization-server", true, true),
            ("HEAD", "/.well-known/oauth-authorization-server/mcp", true, true),
            ("GET", "/.well-known/openid-configuration", true, true),
            ("GET", "/.well-known/openid-configuration/", false, true),
            ("POST", "/register", false, true),
            ("POST", "/register", true, false),
            ("GET", "/register", false, false),
            ("POST", "/register/", false, false),
            ("POST", "/.well-known/openid-configuration", false, false),
            ("GET", "/.well-known/openid-configurationx", false, false),
            ("GET", "/mcp/.well-known/openid-configuration", false, false),
            ("GET", "/.well-known/oauth-protected-resource", false, false),
        ] {
            let check = |tenant: &Tenant| {
                let decision = decide(tenant, method, path.as_bytes());
                check_login(tenant, decision, (method, path.as_bytes()), || shows).is_err()
            };
            assert_eq!((check(&usual), check(&silent)), (is_refused, false), "{method} {path} {shows}");
        }
    }
}
