//! The keys of one tenant.

use std::sync::Arc;

use crate::config::tenants::context::{Context, upstreams};
use crate::config::tenants::{proxy, route};
use crate::config::tiers::{self, REQUESTS_PER_MINUTE};
use crate::config::written::{choice, host, valid};
use crate::config::{notes::NamedFile, problem::Problem, reader::Reader, tier_sources::TIERS};
use crate::domain::{
    AcceptedCredentials, HostPattern, PASSING_TIERS, PerTier, ProxyRules, Quota, Route, RouteAccess, Tenant,
    held_key::is_tenant_id, tier::passing_tier,
};

/// How many hosts a tenant may have.
const HOSTS_MAX: usize = 256;

/// How many routes a tenant may have.
const ROUTES_MAX: usize = 1_000;

/// How many tools and methods of MCP all of them may name: each item of a list is compared with them.
const CALLS_MAX: usize = 1_024;

const CREDENTIALS: [&str; 4] = ["api_key", "signature", "erc8128", "erc8128_untagged"];

/// What a tenant takes that does not say.
const USUAL_CREDENTIALS: [&str; 2] = ["api_key", "signature"];

/// The longest body that is held until its digest is checked, in bytes.
const HELD_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A tenant as it stands in a file.
pub(in crate::config) struct Claimant {
    pub(in crate::config) tenant: Arc<Tenant>,
    /// The files that its keys name.
    pub(in crate::config) files: Vec<NamedFile>,
    /// Everything for which it alone can't be served, and the rest of its file can.
    pub(in crate::config) problems: Vec<Problem>,
}

/// Reads the id of a tenant.
fn id(text: &str) -> Result<Arc<str>, String> {
    let wanted = match text {
        "-" => "another, as this one stands for no tenant",
        _ => "1 to 64 characters of A-Z, a-z, 0-9, -, _ and .",
    };
    valid(text, is_tenant_id(text).then(|| text.into()), wanted)
}

/// Reads one tenant.
pub(super) fn read(reader: &mut Reader, context: &Context) -> Option<Claimant> {
    // A tenant that other gateways alone ask for.
    let is_asked_for = context.has_authz && !["hosts", "upstreams"].iter().any(|path| reader.is_given(path));
    let (mut taken, noted) = (route::Taken::default(), reader.notes.files.len());
    let tenant = read_all!(reader: Tenant {
        /// The tenant's name in limits, logs and metrics: 1 to 64 characters of A-Z, a-z, 0-9, -, _ and . that no other has.
        /// Example: "acme"
        id: reader.required_text("id", id),
        /// Where there is listen.authz a tenant may have neither hosts nor upstreams: other gateways alone ask for it.
        /// 1 to 256 hosts, none of which another tenant has: a name, "*.example" for every name below it, or "*" for whatever
        /// host no other tenant has.
        /// Example: ["api.acme.example", "*.acme.dev"]
        hosts: if is_asked_for {
            Some(Vec::new())
        } else {
            reader.required_texts("hosts", HOSTS_MAX, host)
        },
        /// Optional. Up to 256 hosts for which signatures over requests count, of agents (docs/erc8128.md) and of bots; without it those in
        /// hosts, but for "*". What is signed for another host is another service's, and could be sent on to us. List here the names that a
        /// gateway in front has, and your own hosts where others serve some below a "*.".
        /// Example: ["api.acme.example"]
        signed_hosts: signed_hosts(reader, context, hosts.as_deref()),
        /// Where its requests go, 1 to 64: host and port, or http://, https:// or h2c:// and a host. Several are balanced;
        /// "127.0.0.1:9001 weight=3" gets three times as much as one without a weight, up to 100.
        /// Example: ["127.0.0.1:9000"]
        upstreams: upstreams(reader, context, !is_asked_for),
        networks: Some(context.networks()),
        /// The lowest tier that passes, 1 to 4.
        min_tier: reader.integer("min_tier", 1, &TIERS).and_then(passing_tier),
        /// The credentials that agents may show: API keys, signatures of their owners, or requests that are signed themselves ("erc8128", and
        /// "erc8128_untagged" for libraries of before August 2026: docs/erc8128.md). Any of those that are listed will do.
        credentials: credentials(reader),
        /// How many requests an agent of tiers 1 to 4 may make here in any 60 seconds: four numbers as in [tiers], or none for
        /// those of [tiers].
        requests_per_minute: requests_per_minute(reader),
        /// The fate of an agent whose Origin is not the endpoint declared for its key: "allow", and the upstream is told, or
        /// "deny". A signature declares no endpoint and always passes.
        denies_endpoint_mismatch: reader
            .word("on_endpoint_mismatch", "allow", &[("allow", false), ("deny", true)]),
        proxy: proxy::read(reader),
        /// When the body of a request that is signed itself is compared with its digest: as it passes ("stream"), so that the
        /// upstream gets another body without its end, or "before" any of it passes. That holds bodies in memory, and needs
        /// max_body_bytes of 8388608 at most.
        holds_bodies: reader.word("digest", "stream", &[("stream", false), ("before", true)]),
        cors: proxy::cors(reader, credentials),
        in_flight: proxy::in_flight(reader),
        /// true: the gateway itself answers /.well-known/tiergate, /.well-known/erc8128 where requests are signed, and
        /// /.well-known/oauth-protected-resource (RFC 9728, also with a path behind it) at these hosts, to everybody, where routes
        /// would ask for an agent; and whether a 401 leads there. A route that makes these paths public leaves them to the upstream.
        /// Clients that look for OAuth where no route takes their request are told then that there is none (404).
        /// It tells the chain, its registries, tiers, limits, what credentials are taken here, and where keys are made.
        discovery: reader.boolean("discovery", true),
        /// true: upstreams get X-Agent-Assertion, a JWT of 60 seconds that names agent, owner, tier and this tenant. Needs [assertion].
        assertion: reader.boolean("assertion", false),
        /// true: every path of this tenant is an endpoint of MCP (docs/mcp.md): each POST is a message, whose call routes select by their
        /// tools and methods. Where other things have paths here too, write it on the endpoint's route.
        mcp: reader.boolean("mcp", false),
        /// Example: "/etc/tiergate/acme.crt"
        /// Example: "/etc/tiergate/acme.key"
        tls: reader.key_pair("tls.cert", "tls.key"),
        routes: reader
            .tables("routes", ROUTES_MAX, |reader| route::read(reader, &mut taken, context)),
    } then {
        let takes_no_key = credentials.is_some_and(|accepted: AcceptedCredentials| !accepted.api_key);
        if denies_endpoint_mismatch == Some(true) && takes_no_key {
            let phrase =
                "has no meaning for signatures, which declare no endpoint; remove it, or accept \"api_key\"";
            reader.report(&["on_endpoint_mismatch"], phrase);
        }
        if holds_bodies == Some(true) {
            check_held(reader, proxy.as_ref().map(|proxy: &ProxyRules| proxy.body_bytes_max), credentials);
        }
        let takes_bots = |route: &Route| route.bot_requests_per_minute.is_some() && !context.lacks_bots;
        let takes_messages = credentials.is_some_and(AcceptedCredentials::has_messages);
        if takes_messages || routes.iter().flatten().any(takes_bots) {
            signed_hosts.iter().for_each(|named| check_signed(reader, named));
        }
        let calls = routes.iter().flatten().map(|route: &Route| route.calls.written().count());
        if calls.sum::<usize>() > CALLS_MAX {
            let phrase = "has routes with more than 1024 tools and methods of MCP; write beginnings of names, such as \"billing_*\"";
            reader.report_table(phrase);
        }
        let is_public = |route: &Route| route.access == RouteAccess::Public;
        if routes.as_ref().is_some_and(|routes| routes.iter().any(is_public)) {
            in_flight.iter().for_each(|limits| proxy::check_strangers(reader, limits));
        }
        let hosts = hosts.as_deref().unwrap_or_default();
        context.claim(reader, id.as_ref(), hosts);
        if assertion == Some(true) && context.lacks_signer {
            let phrase = "needs [assertion] with issuer and key_file; without them nobody signs";
            reader.report(&["assertion"], phrase);
        }
        if takes_messages && context.lacks_kept_nonces {
            let phrase = "take requests that are signed for a minute, which are refused: write at least max_ahead and 90s for \
                          signature.nonce_retention";
            reader.warn(&["credentials"], phrase);
        }
        let shown = tls.as_ref().and_then(Option::as_ref);
        context.check_tls(reader, shown, hosts);
        context.check_files(reader, noted);
    });
    let files = reader.notes.files.iter().skip(noted).cloned().collect();
    Some(Claimant { tenant: Arc::new(tenant?), files, problems: Vec::new() })
}

fn credentials(reader: &mut Reader) -> Option<AcceptedCredentials> {
    const PATH: &str = "credentials";
    let kinds = 1..=CREDENTIALS.len();
    let accepted =
        reader.texts(PATH, &USUAL_CREDENTIALS, &kinds, choice(&CREDENTIALS.map(|word| (word, word))))?;
    let accepted = reader.distinct(PATH, accepted)?;
    let accepts = |word| accepted.contains(&word);
    Some(AcceptedCredentials {
        api_key: accepts("api_key"),
        signature: accepts("signature"),
        erc8128: accepts("erc8128"),
        erc8128_untagged: accepts("erc8128_untagged"),
    })
}

/// The hosts that signatures count for: those that are listed, or the tenant's own. `*` names none.
fn signed_hosts(
    reader: &mut Reader,
    context: &Context,
    own: Option<&[HostPattern]>,
) -> Option<Vec<HostPattern>> {
    let listed = reader.optional_texts("signed_hosts", HOSTS_MAX, host)?.into_iter();
    let listed = listed.map(|host| context.check_host(&host).map(|()| host));
    let listed = reader.check_items("signed_hosts", listed)?;
    let all = if listed.is_empty() { own?.to_vec() } else { listed };
    Some(all.into_iter().filter(|host| *host != HostPattern::Any).collect())
}

/// Whoever a request was signed for may send it on, with whatever `Host` was signed.
fn check_signed(reader: &mut Reader, named: &[HostPattern]) {
    if named.is_empty() {
        let phrase = "has to name those that agents and bots call who sign their requests; \"*\" names none";
        reader.report(&["signed_hosts"], phrase);
    }
    let is_wide = |host: &HostPattern| matches!(host, HostPattern::Below(_));
    if !reader.is_given("signed_hosts") && named.iter().any(is_wide) {
        let phrase = "let what is signed for any host below a \"*.\" count here; if others serve some, list yours in signed_hosts";
        reader.warn(&["hosts"], phrase);
    }
}

/// Bodies that are held take memory for each request under way.
fn check_held(reader: &mut Reader, bytes_max: Option<Option<u64>>, credentials: Option<AcceptedCredentials>) {
    if credentials.is_some_and(|accepted| !accepted.has_messages()) {
        let phrase = "has no meaning without signed requests; remove it, or accept \"erc8128\"";
        reader.report(&["digest"], phrase);
    }
    if bytes_max.is_some_and(|most| most.is_none_or(|most| most > HELD_BYTES_MAX)) {
        let phrase = format!("holds bodies: write max_body_bytes of 1 to {HELD_BYTES_MAX}, or \"stream\"");
        reader.report(&["digest"], phrase);
    }
}

/// The tenant's own limits, or none when the list is empty. The outer `None` is a problem.
fn requests_per_minute(reader: &mut Reader) -> Option<Option<PerTier<Quota>>> {
    const PATH: &str = "requests_per_minute";
    // Counted here, because the phrase has to say what an empty list means.
    let limits: Vec<u32> = reader.integers(PATH, &[], &(0..=usize::MAX), &REQUESTS_PER_MINUTE)?;
    if limits.is_empty() {
        return Some(None);
    }
    if limits.len() != PASSING_TIERS.len() {
        let (found, wanted) = (limits.len(), PASSING_TIERS.len());
        reader.report(&[PATH], format!("has {found} items; write {wanted}, or none for those of [tiers]"));
        return None;
    }
    tiers::requests_per_minute(reader, PATH, limits).map(Some)
}
