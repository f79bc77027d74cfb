//! The headers that an upstream sees instead of the client's: those in our name are stripped, then ours are written.
//!
//! A rule that is asked about each header of a head sees no other header: what it needs of them is noted before, by one
//! look. So a head costs time by its length, whatever is in it. Names are compared in a normal form, because many servers take
//! `X_Agent_Id` and `X-Agent-Id` for one header.

use std::sync::LazyLock;

use bytes::Bytes;

use crate::domain::{ApiKeyFormat, FORWARDED_PREFIX, OF_PROXIES, TrustedHeaders, uint256::decimal};
use crate::gateway::policy::answers;
use crate::http1::{Fields, Lines, Options, name::Name, writing::write_decimal};
use crate::pipeline::permit::Permit;
use crate::wire::credentials::shows_key;

/// True if a header of the client's request is for one hop only, and ends here, as it does in an answer or in requests alone.
pub(in crate::gateway) fn is_of_one_hop(options: &Options<'_>, id: Name, name: &[u8]) -> bool {
    let in_requests = matches!(
        id,
        Name::Connection
            | Name::Http2Settings
            | Name::ProxyAuthenticate
            | Name::ProxyAuthorization
            | Name::Te
            | Name::Trailer
            | Name::TransferEncoding
            | Name::Upgrade
    );
    in_requests || answers::is_of_one_hop(options, id, name)
}

/// Says which headers of a request go upstream as they are.
pub(in crate::gateway) struct Kept<'a> {
    authorization: bool,
    api_key: bool,
    /// The headers that the peer is trusted to set.
    believed: &'a TrustedHeaders,
}

impl<'a> Kept<'a> {
    /// The headers of this request that are kept. A header of which any value shows an API key is stripped whole.
    pub(in crate::gateway) fn of(
        fields: &impl Fields,
        keys: &ApiKeyFormat,
        believed: &'a TrustedHeaders,
    ) -> Self {
        let shows_none = |id| !fields.values(id).any(|value| shows_key(id, value, keys));
        Self { authorization: shows_none(Name::Authorization), api_key: shows_none(Name::ApiKey), believed }
    }

    /// True if a header goes upstream as it is: it is neither one that we set nor a credential of ours.
    pub(in crate::gateway) fn has(&self, id: Name, name: &[u8]) -> bool {
        if id == Name::Other {
            return match header_class(name) {
                HeaderClass::Free => true,
                HeaderClass::OfProxies => self.believed.has(name),
                HeaderClass::Stripped => false,
            };
        }
        if matches!(id, Name::Authorization | Name::ApiKey) {
            return if id == Name::ApiKey { self.api_key } else { self.authorization };
        }
        !matches!(
            id,
            Name::AgentId
                | Name::AgentNonce
                | Name::AgentSignature
                | Name::AgentTimestamp
                | Name::Forwarded
                | Name::ForwardedFor
                | Name::ForwardedHost
                | Name::ForwardedProto
                | Name::RequestId
                | Name::Via
        )
    }
}

/// True if a trailer of the client's request goes upstream: not one that routes, frames, proves, names anybody, or says what the body is
/// (RFC 9110, section 6.5.1).
pub(in crate::gateway) fn is_trailer_kept(id: Name, name: &[u8]) -> bool {
    const OF_HEADS: [&[u8]; 8] = [
        b"accept-signature",
        b"content-encoding",
        b"content-language",
        b"content-range",
        b"content-type",
        b"range",
        b"signature",
        b"signature-input",
    ];
    let is_of_head = OF_HEADS.iter().any(|one| one.len() == name.len() && begins(name, one));
    id == Name::Other && !is_of_head && header_class(name) == HeaderClass::Free
}

/// True if a request asks for an answer that lasts: another protocol where its route allows that, or server-sent events and
/// nothing else. Clients that take events beside other types get them for a single answer.
pub(in crate::gateway) fn asks_for_stream(fields: &impl Fields, upgrades: bool) -> bool {
    let is_accept = |name: &[u8]| name.eq_ignore_ascii_case(b"accept");
    let mut accepted = fields.all().filter(|(name, _)| is_accept(name)).map(|(_, value)| value);
    let is_events = |value: &[u8]| {
        let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        !value.contains(&b',') && media_type.eq_ignore_ascii_case(b"text/event-stream")
    };
    (upgrades && fields.upgrades()) || (accepted.next().is_some_and(is_events) && accepted.next().is_none())
}

/// The beginning of our headers' names, in normal form.
const OURS: &[u8] = b"x-agent-";

/// Headers that no upstream sees by these names: other spellings of those that we set or read.
const STRIPPED: [&str; 6] =
    ["forwarded", "x-api-key", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"];

/// Headers that no upstream sees from a client, whoever forwards: those by which some servers take another path than the one that was
/// judged, and `Proxy`, which CGI turns into `HTTP_PROXY`.
const OVERRIDES: [&str; 4] = ["proxy", "x-original-uri", "x-original-url", "x-rewrite-url"];

/// The class of a header by its name, however that is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderClass {
    /// Goes upstream.
    Free,
    /// Goes upstream from a proxy that is trusted to set it, and is stripped from others.
    OfProxies,
    /// Stripped.
    Stripped,
}

/// Tells the upstream who is calling, with the assertion about it if there is one.
pub(in crate::gateway) fn write_identity(permit: &Permit, assertion: Option<&str>, lines: &mut impl Lines) {
    let (id, profile) = (permit.agent().token_id(), permit.profile());
    let mismatch: &[u8] = if permit.endpoint_mismatch() { b"true" } else { b"false" };
    lines.line("X-Agent-Id", |out| match u64::try_from(id) {
        Ok(id) => write_decimal(id, out),
        Err(_) => out.extend_from_slice(decimal(id).as_bytes()),
    });
    lines.set("X-Agent-Owner", profile.owner_text().as_bytes());
    lines.set("X-Agent-Tier", &[b'0' + permit.tier().number()]);
    if let Some(source) = permit.grade().source {
        lines.set("X-Agent-Tier-Source", source.as_bytes());
    }
    if let Some(stake) = profile.stake_text() {
        lines.set("X-Agent-Staked-Amount", stake.as_bytes());
    }
    lines.set("X-Agent-Endpoint-Mismatch", mismatch);
    if let Some(assertion) = assertion {
        lines.set("X-Agent-Assertion", assertion.as_bytes());
    }
}

/// The names of headers that tell an upstream of ours who calls, and of those that prove it to us. Another gateway strips them
/// where we don't set them: it may not have shown us all that the client sent.
const OF_AGENTS: [&str; 12] = [
    "x-agent-domain",
    "x-agent-id",
    "x-agent-owner",
    "x-agent-tier",
    "x-agent-tier-source",
    "x-agent-staked-amount",
    "x-agent-endpoint-mismatch",
    "x-agent-assertion",
    "x-agent-signature",
    "x-agent-nonce",
    "x-agent-timestamp",
    "x-api-key",
];

/// [`OF_AGENTS`] and [`OVERRIDES`], and their spellings with `_` for one `-` or more.
static SPELLINGS: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    let all = || OF_AGENTS.iter().chain(&OVERRIDES);
    let dashed = all().map(|name| Bytes::from_static(name.as_bytes()));
    let others = all().flat_map(|name| {
        let parts: Vec<&str> = name.split('-').collect();
        (1..1 << (parts.len() - 1)).map(move |mask: u32| {
            let mut spelled = parts.first().copied().unwrap_or_default().to_owned();
            for (at, part) in parts.iter().skip(1).enumerate() {
                spelled.push(if mask >> at & 1 == 1 { '_' } else { '-' });
                spelled.push_str(part);
            }
            Bytes::from(spelled)
        })
    });
    dashed.chain(others).collect()
});

/// Headers that tell how a request came, and that a gateway which asks has set itself, over those of the client.
const OF_GATEWAYS: [&str; 4] =
    ["x-forwarded-client-cert", "x-forwarded-for", "x-forwarded-proto", "x-request-id"];

/// The names that another gateway strips from a request with these fields: those in our name and our credentials, however they
/// are spelled, but for those that it sets; [`OVERRIDES`]; and those that tell how the request came, but for [`OF_GATEWAYS`] and
/// those that proxies are believed to set.
pub(in crate::gateway) fn to_strip(
    fields: &impl Fields,
    keys: &ApiKeyFormat,
    believed: &TrustedHeaders,
    set: &[&str],
) -> Vec<Bytes> {
    let is_one = |name: &[u8], all: &[&str]| all.iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes()));
    let is_set = |name: &[u8]| is_one(name, set);
    let mut names: Vec<Bytes> = SPELLINGS.iter().filter(|name| !is_set(name)).cloned().collect();
    for (name, value) in fields.all() {
        let is_stripped =
            header_class(name) != HeaderClass::Free && !is_one(name, &OF_GATEWAYS) && !believed.has(name);
        if is_stripped || shows_key(Name::of(name), value, keys) {
            // A name that stands there twice is stripped once. To look for it would cost time by the square of the head.
            if !is_set(name) {
                names.push(name.to_ascii_lowercase().into());
            }
        }
    }
    names
}

/// True if a name of these fields is one of [`OF_AGENTS`] or [`OVERRIDES`] in another spelling, as `X_Agent_Id`. A gateway that
/// strips by names would leave it.
pub(in crate::gateway) fn is_respelled(fields: &impl Fields) -> bool {
    let respells = |name: &[u8], one: &str| {
        name.len() == one.len() && begins(name, one.as_bytes()) && !name.eq_ignore_ascii_case(one.as_bytes())
    };
    let names = || OF_AGENTS.iter().chain(&OVERRIDES);
    fields.all().any(|(name, _)| names().any(|one| respells(name, one)))
}

/// The standing of a name that is none of those that rules know by an id.
fn header_class(name: &[u8]) -> HeaderClass {
    // Most names begin with none of these letters, which are those of the lists.
    if !matches!(name.first(), Some(b'c' | b'C' | b'f' | b'F' | b'p' | b'P' | b't' | b'T' | b'x' | b'X')) {
        return HeaderClass::Free;
    }
    let is_one = |one: &&str| one.len() == name.len() && begins(name, one.as_bytes());
    if begins(name, OURS) || STRIPPED.iter().chain(&OVERRIDES).any(is_one) {
        HeaderClass::Stripped
    } else if begins(name, FORWARDED_PREFIX.as_bytes()) || OF_PROXIES.iter().any(is_one) {
        HeaderClass::OfProxies
    } else {
        HeaderClass::Free
    }
}

/// True if a name begins like this, in normal form.
fn begins(name: &[u8], with: &[u8]) -> bool {
    name.len() >= with.len() && name.iter().zip(with).all(|(byte, other)| normal(*byte) == *other)
}

/// Lower case, and `-` for whatever is no letter or digit.
const fn normal(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use proptest::prelude::{prop_assert, proptest};

    use super::{
        ApiKeyFormat, HeaderClass, Kept, Name, OF_AGENTS, OF_PROXIES, OVERRIDES, Options, STRIPPED,
        TrustedHeaders, asks_for_stream, header_class, is_of_one_hop,
    };

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    /// The names of these headers that are kept.
    fn left(names: &[&str]) -> Vec<String> {
        left_of(&TrustedHeaders::NONE, names)
    }

    /// The same, where the peer is trusted to set these headers.
    fn left_of(believed: &TrustedHeaders, names: &[&str]) -> Vec<String> {
        let lines: Vec<_> = names.iter().map(|name| (*name, "Bearer svc_live_v1_x")).collect();
        let (headers, format) = (map(&lines), ApiKeyFormat::new("svc_live_v1_"));
        let kept = Kept::of(&headers, &format, believed);
        let is_kept = |name: &&str| kept.has(Name::of(name.as_bytes()), name.as_bytes());
        names.iter().copied().filter(is_kept).map(str::to_owned).collect()
    }

    // threat: Forged identity or forwarding headers
    #[test]
    fn headers_that_may_be_taken_for_ours_go_and_others_stay() {
        assert!(
            left(&["X-Agent-Id", "x_agent_owner", "X.Agent.Tier", "x-agent-", "X-AGENT~anything"]).is_empty()
        );
        assert!(
            left(&["Authorization", "X-API-Key", "X_Forwarded_For", "x_api_key", "X.Request.Id"]).is_empty()
        );
        assert!(left(&["x-forwarded-for", "Forwarded", "x-request-id", "via"]).is_empty(), "ours are set");
        let listed = STRIPPED.iter().chain(&OVERRIDES).chain(&OF_AGENTS);
        assert!(listed.chain(&OF_PROXIES).all(|name| header_class(name.as_bytes()) != HeaderClass::Free));
        let kept = [
            "x-agent",
            "xagent-id",
            "x-agents-id",
            "user-agent",
            "x-note",
            "cookie",
            "proxy-x",
            "x-forwarded",
        ];
        assert_eq!(left(&kept), kept);
    }

    // threat: Forged identity or forwarding headers
    #[test]
    fn no_header_overrides_the_judged_path_or_names_a_proxy_whoever_writes_it() {
        let overriding =
            ["X-Original-URL", "x_rewrite_url", "X.Original.URI", "Proxy", "proxy", "X_Forwarded_For"];
        for believed in [TrustedHeaders::NONE, TrustedHeaders::new(&overriding)] {
            assert_eq!(left_of(&believed, &overriding), [""; 0]);
        }
    }

    // threat: Forged identity or forwarding headers
    #[test]
    fn a_trusted_proxy_alone_tells_how_a_request_came_and_only_by_the_headers_that_it_sets() {
        let told =
            ["X-Forwarded-Port", "X-Forwarded-Prefix", "x-forwarded-ssl", "X-Real-IP", "true-client-ip"];
        assert_eq!(left(&told), [""; 0]);
        assert_eq!(left_of(&TrustedHeaders::new(&told), &told), told);
        assert_eq!(left_of(&TrustedHeaders::new(&["X-Real-IP"]), &told), ["X-Real-IP"]);
        let spelled = ["X_Forwarded_Port", "x.forwarded.prefix", "X_Real_IP"];
        assert_eq!(left_of(&TrustedHeaders::new(&told), &spelled), [""; 0]);
    }

    #[test]
    fn headers_of_one_hop_end_here_and_those_for_framing_and_caches_can_not_be_named_away() {
        let names = "close, X-Note ,content-length, Cache-Control";
        let headers = map(&[("Connection", names), ("connection", "cookie")]);
        let options = Options::of(&headers).unwrap();
        for (name, ends) in [
            ("connection", true),
            ("keep-alive", true),
            ("te", true),
            ("x-note", true),
            ("X-NOTE", true),
            ("Cookie", true),
            ("Content-Length", false),
            ("cache-control", false),
            ("x-other", false),
        ] {
            assert_eq!(is_of_one_hop(&options, Name::of(name.as_bytes()), name.as_bytes()), ends, "{name}");
        }
    }

    #[test]
    fn a_stream_is_an_upgrade_that_its_route_allows_or_events_and_nothing_else() {
        let asks = |lines: &[(&str, &str)], upgrades| asks_for_stream(&map(lines), upgrades);
        assert!(asks(&[("Upgrade", "websocket")], true) && !asks(&[("Upgrade", "websocket")], false));
        for events in ["text/event-stream", "Text/Event-Stream;charset=utf-8", " text/event-stream ; q=1"] {
            assert!(asks(&[("Accept", events)], false), "{events}");
        }
        for other in ["*/*", "application/json, text/event-stream", "text/event-streams", ""] {
            assert!(!asks(&[("Accept", other)], true), "{other}");
        }
        assert!(!asks(&[("Accept", "text/event-stream"), ("Accept", "application/json")], true));
        assert!(!asks(&[("X-Accept", "text/event-stream")], true) && !asks(&[], true));
    }

    proptest! {
        // threat: Forged identity or forwarding headers
        #[test]
        fn no_spelling_of_an_agent_header_survives(
            separators in "[-_.!#$%&'*+^`|~]{2}",
            rest in "[a-zA-Z0-9_.~-]{0,12}",
            upper in proptest::bits::u8::ANY,
        ) {
            let (first, second) = separators.split_at(1);
            let spelled = format!("x{first}agent{second}{rest}");
            let spelled: String = spelled.chars().enumerate()
                .map(|(at, letter)| if upper >> (at % 8) & 1 == 1 { letter.to_ascii_uppercase() } else { letter })
                .collect();
            prop_assert!(HeaderName::from_bytes(spelled.as_bytes()).is_ok());
            prop_assert!(left(&[&spelled]).is_empty(), "{spelled}");
        }
    }
}
