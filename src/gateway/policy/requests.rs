//! The headers that an upstream sees instead of the client's.

use crate::domain::api_key::ApiKeyFormat;
use crate::gateway::policy::identity::{is_misspelled, is_ours};
use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::wire::credentials::shows_key;

/// True if a header of the client's request is for one hop only, and ends here (RFC 9110, section 7.6.1).
///
/// `Connection` names others. The reader of heads refuses a request that names a header which frames or routes it.
pub(in crate::gateway) fn is_of_one_hop(fields: &impl Fields, id: Name, name: &[u8]) -> bool {
    let always = matches!(
        id,
        Name::Connection
            | Name::Http2Settings
            | Name::KeepAlive
            | Name::ProxyAuthenticate
            | Name::ProxyAuthorization
            | Name::ProxyConnection
            | Name::Te
            | Name::Trailer
            | Name::TransferEncoding
            | Name::Upgrade
    );
    let never = matches!(id, Name::ContentLength | Name::Host);
    always || (!never && is_named_by_connection(fields, name))
}

/// True if a header of the client's request goes upstream as it is. Headers that we set don't, and neither does a
/// credential of ours: a header of which any value shows an API key is stripped whole.
pub(in crate::gateway) fn is_kept(fields: &impl Fields, id: Name, name: &[u8], keys: &ApiKeyFormat) -> bool {
    if id == Name::Other {
        return !is_ours(name) && !is_misspelled(name);
    }
    if matches!(id, Name::Authorization | Name::ApiKey) {
        return !fields.values(id).any(|value| shows_key(id, value, keys));
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

/// True if a trailer of the client's request goes upstream: not one that routes, frames, proves or names anybody (RFC 9110,
/// section 6.5.1).
pub(in crate::gateway) fn is_trailer_kept(id: Name, name: &[u8]) -> bool {
    id == Name::Other && !is_ours(name) && !is_misspelled(name)
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
    (upgrades && fields.has(Name::Upgrade))
        || (accepted.next().is_some_and(is_events) && accepted.next().is_none())
}

/// True if `Connection` names a header.
pub(super) fn is_named_by_connection(fields: &impl Fields, name: &[u8]) -> bool {
    if !fields.has(Name::Connection) {
        return false;
    }
    let mut options = fields.values(Name::Connection).flat_map(|line| line.split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use proptest::prelude::{prop_assert, proptest};

    use super::{ApiKeyFormat, Name, asks_for_stream, is_kept, is_of_one_hop};

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
        let lines: Vec<_> = names.iter().map(|name| (*name, "Bearer svc_live_v1_x")).collect();
        let (headers, format) = (map(&lines), ApiKeyFormat::new("svc_live_v1_"));
        let is_kept = |name: &&str| is_kept(&headers, Name::of(name.as_bytes()), name.as_bytes(), &format);
        names.iter().copied().filter(is_kept).map(str::to_owned).collect()
    }

    #[test]
    fn headers_that_may_be_taken_for_ours_go_and_others_stay() {
        assert!(
            left(&["X-Agent-Id", "x_agent_owner", "X.Agent.Tier", "x-agent-", "X-AGENT~anything"]).is_empty()
        );
        assert!(
            left(&["Authorization", "X-API-Key", "X_Forwarded_For", "x_api_key", "X.Request.Id"]).is_empty()
        );
        assert!(left(&["x-forwarded-for", "Forwarded", "x-request-id", "via"]).is_empty(), "ours are set");
        let kept = ["x-agent", "xagent-id", "x-agents-id", "user-agent", "x-note", "cookie"];
        assert_eq!(left(&kept), kept);
    }

    #[test]
    fn headers_of_one_hop_end_here_and_those_that_frame_a_body_can_not_be_named_away() {
        let headers = map(&[("Connection", "close, X-Note ,content-length"), ("connection", "cookie")]);
        for (name, ends) in [
            ("connection", true),
            ("keep-alive", true),
            ("te", true),
            ("x-note", true),
            ("X-NOTE", true),
            ("Cookie", true),
            ("Content-Length", false),
            ("x-other", false),
        ] {
            assert_eq!(is_of_one_hop(&headers, Name::of(name.as_bytes()), name.as_bytes()), ends, "{name}");
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
