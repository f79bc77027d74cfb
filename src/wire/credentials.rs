//! Credentials in headers, where the gateway takes them, parsed into the domain's types: one credential, or none at all.
//!
//! What is shown twice, or in two ways, is refused: two readers might take different ones.

use serde_json::Value;

use crate::domain::{
    AcceptedCredentials, ApiKeyFormat, Denial, KeyDigest, MessageRefusal, SignatureFormat, WebOrigin,
};
use crate::error::Error;
use crate::http1::{Fields, name::Name};
use crate::message_signature::Candidates;
use crate::pipeline::{Credential, SignedMessages, SignedRequest};
use crate::wire::bodies::{Field, signed_request};

/// The headers that may show an API key, for documents. Behind `Authorization` it is a `Bearer`.
pub(crate) const KEY_HEADERS: [&str; 2] = ["Authorization", "X-API-Key"];

/// The headers of a signed request, for documents.
pub(crate) const SIGNATURE_HEADERS: [&str; 4] =
    ["X-Agent-Id", "X-Agent-Signature", "X-Agent-Nonce", "X-Agent-Timestamp"];

/// Fields whose presence makes a request a signed one.
const SIGNED: [Name; 3] = [Name::AgentSignature, Name::AgentNonce, Name::AgentTimestamp];

const REPEATED: Error = Error::Unproven { problem: "A credential is shown more than once; show one, once" };

/// Takes the one credential out of a request. `signed` reads the signatures over the request itself, where the tenant
/// takes them.
/// Error: 401 when there is none that the tenant takes, or one stands more than once; 400 when there are two kinds, or
/// one is not of the contract's shape.
pub(crate) fn credential_of(
    fields: &impl Fields,
    (format, signatures): (&ApiKeyFormat, SignatureFormat),
    accepted: AcceptedCredentials,
    signed_messages: impl FnOnce() -> Option<Result<Candidates, MessageRefusal>>,
) -> Result<Credential, Error> {
    let key = key_shown(fields, format)?;
    let is_signed = SIGNED.into_iter().any(|name| fields.has(name));
    if accepted.has_messages() {
        let messages = messages(fields, signed_messages(), key.is_some() || is_signed)?;
        if let Some(messages) = messages {
            return Ok(Credential::Messages(messages));
        }
        if key.is_none() && !is_signed && !accepted.api_key && !accepted.signature {
            return Err(refused(MessageRefusal::SignatureMissing));
        }
    }
    match (key, is_signed) {
        (Some(_), true) => Err(several("are both an API key and a signature; show one of them")),
        (Some((name, value)), false) if accepted.api_key => {
            Ok(Credential::Key { digest: key_digest(name, value, format)?, named: None })
        }
        (None, true) if accepted.signature => signed(fields, signatures).map(Credential::Signature),
        (Some(_), false) => Err(Error::Unproven { problem: "API keys are not taken here" }),
        (None, true) => Err(Error::Unproven { problem: "Signatures are not taken here" }),
        (None, false) => Err(Error::Unproven { problem: "An agent's credential is required" }),
    }
}

/// The signatures over the request itself. Those of other kinds, beside another credential, are somebody else's.
fn messages(
    fields: &impl Fields,
    found: Option<Result<Candidates, MessageRefusal>>,
    shows_other: bool,
) -> Result<Option<SignedMessages>, Error> {
    let Candidates { messages, first_refusal } = match found {
        None => return Ok(None),
        Some(Err(
            MessageRefusal::SignatureMissing
            | MessageRefusal::NoAcceptableSignature
            | MessageRefusal::SignatureInputInvalid
            | MessageRefusal::SignatureTooLarge,
        )) if shows_other => return Ok(None),
        Some(Err(refusal)) => return Err(refused(refusal)),
        Some(Ok(_)) if shows_other => {
            return Err(several("are a signed request and something else; show one of them"));
        }
        Some(Ok(candidates)) => candidates,
    };
    let agent = text_of("agentId", fields, Name::AgentId)?;
    let agent = Field::in_header("agentId", agent).agent()?;
    Ok(Some(SignedMessages { agent, messages, first_refusal }))
}

fn several(problem: &'static str) -> Error {
    Error::Invalid { field: "credentials", received: Value::Null, problem: problem.into() }
}

fn refused(refusal: MessageRefusal) -> Error {
    Denial::of_message(None, refusal).into()
}

/// The web origin that the request comes from. Browsers write `null` where there is none.
/// Error: 400 when it is not an origin, or there is more than one.
pub(crate) fn origin_of(fields: &impl Fields) -> Result<Option<WebOrigin>, Error> {
    let text = text_of("origin", fields, Name::Origin)?.filter(|text| *text != "null");
    Field::in_header("origin", text).optional(Field::origin)
}

/// True if a header shows an API key of ours, well-formed or not. Such a header is never forwarded; what another service
/// takes for a credential is.
pub(crate) fn shows_key(name: Name, value: &[u8], format: &ApiKeyFormat) -> bool {
    let prefix = format.prefix().as_bytes();
    let may_hold_key = matches!(name, Name::Authorization | Name::ApiKey);
    may_hold_key && value.windows(prefix.len().max(1)).any(|piece| piece == prefix)
}

/// True if a request shows a credential of ours, or a part of one.
pub(crate) fn shows_credential(fields: &impl Fields, format: &ApiKeyFormat) -> bool {
    fields.all().any(|(name, value)| {
        let is_signed =
            name.eq_ignore_ascii_case(b"signature") || name.eq_ignore_ascii_case(b"signature-input");
        is_signed || SIGNED.contains(&Name::of(name)) || shows_key(Name::of(name), value, format)
    })
}

/// The one API key that is shown, with the header that it stands in.
fn key_shown<'a>(fields: &'a impl Fields, format: &ApiKeyFormat) -> Result<Option<(Name, &'a [u8])>, Error> {
    let mut shown = None;
    for name in [Name::Authorization, Name::ApiKey] {
        let mut values = fields.values(name);
        let Some(first) = values.next() else { continue };
        let is_ours = shows_key(name, first, format);
        let mut is_repeated = false;
        let mut any_is_ours = is_ours;
        for other in values {
            is_repeated = true;
            any_is_ours |= shows_key(name, other, format);
        }
        if any_is_ours && (is_repeated || shown.replace((name, first)).is_some()) {
            return Err(REPEATED);
        }
    }
    Ok(shown)
}

fn key_digest(name: Name, value: &[u8], format: &ApiKeyFormat) -> Result<KeyDigest, Error> {
    let bare = if name == Name::Authorization {
        let blank = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
        let (scheme, rest) = value.split_at(blank);
        if !scheme.eq_ignore_ascii_case(b"bearer") {
            return Err(Error::Unproven { problem: "An API key in Authorization stands behind Bearer" });
        }
        rest.trim_ascii()
    } else {
        value
    };
    format.digest(bare).ok_or_else(|| {
        if bare.contains(&b',') {
            return REPEATED;
        }
        // A value that is no text is shown as an empty one.
        let text = std::str::from_utf8(bare).unwrap_or_default();
        Field::in_header("apiKey", Some(text)).invalid("is not an API key of this service")
    })
}

fn signed(fields: &impl Fields, format: SignatureFormat) -> Result<SignedRequest, Error> {
    let field = |field: &'static str, name: Name| {
        if fields.values(name).nth(1).is_some() {
            return Err(REPEATED);
        }
        Ok(Field::in_header(field, text_of(field, fields, name)?))
    };
    let agent = field("agentId", Name::AgentId)?;
    let signature = field("signature", Name::AgentSignature)?;
    let nonce = field("nonce", Name::AgentNonce)?;
    let timestamp = field("timestamp", Name::AgentTimestamp)?;
    signed_request([agent, signature, nonce, timestamp], format)
}

/// The one value of a header, as text without the blanks around it.
fn text_of<'a>(field: &'static str, fields: &'a impl Fields, name: Name) -> Result<Option<&'a str>, Error> {
    let invalid =
        |problem: &'static str| Error::Invalid { field, received: Value::Null, problem: problem.into() };
    let mut values = fields.values(name);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(invalid("stands more than once"));
    }
    let text = std::str::from_utf8(value).map_err(|_| invalid("is not text"))?;
    Ok(Some(text.trim()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{
        AcceptedCredentials, ApiKeyFormat, Credential, Error, Name, SignatureFormat, credential_of,
        shows_credential, shows_key,
    };

    const BOTH: AcceptedCredentials =
        AcceptedCredentials { api_key: true, signature: true, erc8128: false, erc8128_untagged: false };

    fn format() -> ApiKeyFormat {
        ApiKeyFormat::new("svc_live_v1_")
    }

    fn key(digit: &str) -> String {
        format!("svc_live_v1_{}", digit.repeat(64))
    }

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in lines.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    /// Status of what a request with these headers gets, or what was read.
    fn read(lines: &[(&str, &str)]) -> Result<Credential, (u16, Error)> {
        credential_of(&headers(lines), (&format(), SignatureFormat::Keys), BOTH, || None)
            .map_err(|cause| (cause.answer(0).1.status().as_u16(), cause))
    }

    #[test]
    fn a_key_stands_behind_bearer_or_in_its_own_header() {
        let (bearer, lower) = (format!("Bearer {}", key("a")), format!("bearer   {}", key("a")));
        for line in [("authorization", &*bearer), ("authorization", &*lower), ("x-api-key", &*key("a"))] {
            assert!(matches!(read(&[line]), Ok(Credential::Key { named: None, .. })), "{line:?}");
        }
    }

    #[test]
    fn a_signed_request_names_the_field_that_is_missing_or_wrong() {
        let signature = format!("0x{}", "1".repeat(130));
        let whole = [
            ("x-agent-id", "7"),
            ("x-agent-signature", signature.as_str()),
            ("x-agent-nonce", "9"),
            ("x-agent-timestamp", "1700000000"),
        ];
        assert!(matches!(read(&whole), Ok(Credential::Signature(_))));
        for (at, field) in ["agentId", "signature", "nonce", "timestamp"].into_iter().enumerate() {
            let mut broken = whole.to_vec();
            for change in [None, Some("x"), Some("-1"), Some("1.5"), Some("1, 1")] {
                match change {
                    None => drop(broken.remove(at)),
                    Some(text) => {
                        broken = whole.to_vec();
                        broken[at].1 = text;
                    }
                }
                match read(&broken).unwrap_err() {
                    (400, Error::Invalid { field: named, .. }) => assert_eq!(named, field, "{broken:?}"),
                    other => panic!("{broken:?}: {other:?}"),
                }
            }
        }
    }

    // threat: Several credentials
    #[test]
    fn a_credential_of_ours_is_shown_once_in_one_header_and_others_are_none() {
        let (good, other) = (key("a"), key("b"));
        let bearer = |text: &str| format!("Bearer {text}");
        let mut unproven: Vec<Vec<(&str, String)>> = vec![vec![]];
        for [one, two] in [[&good, &good], [&good, &other], [&other, &good]] {
            unproven.push(vec![("x-api-key", one.clone()), ("x-api-key", two.clone())]);
            unproven.push(vec![("authorization", bearer(one)), ("authorization", bearer(two))]);
            unproven.push(vec![("authorization", bearer(one)), ("x-api-key", two.clone())]);
            unproven.push(vec![("x-api-key", format!("{one}, {two}"))]);
            unproven.push(vec![("authorization", format!("{},{}", bearer(one), bearer(two)))]);
        }
        for foreign in
            ["Bearer sk-abc", "Basic eDp5", "Digest username=\"x\"", "Bearer", "Bearer SVC_LIVE_V1_a", ""]
        {
            let foreign = foreign.to_owned();
            unproven.push(vec![("authorization", foreign.clone()), ("x-api-key", foreign.clone())]);
            unproven.push(vec![("authorization", foreign.clone()), ("authorization", bearer(&good))]);
            unproven.push(vec![("authorization", bearer(&good)), ("authorization", foreign.clone())]);
            unproven.push(vec![("x-api-key", foreign.clone()), ("x-api-key", good.clone())]);
            unproven.push(vec![("authorization", format!("{foreign}, {}", bearer(&good)))]);
            unproven.push(vec![("x-api-key", format!("{foreign}, {good}"))]);
        }
        for text in
            [good.clone(), format!("Basic {good}"), format!("Token {good}"), format!("Bearer {good},")]
        {
            unproven.push(vec![("authorization", text)]);
        }
        let signed = ["x-agent-id", "x-agent-signature", "x-agent-nonce", "x-agent-timestamp"];
        for name in signed {
            let whole = signed.into_iter().chain([name]).map(|name| (name, "1".to_owned()));
            unproven.extend([whole.clone().collect(), whole.rev().collect::<Vec<_>>()]);
        }
        for lines in unproven {
            let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert!(matches!(read(&lines), Err((401, Error::Unproven { .. }))), "{lines:?}");
        }
        for (name, value) in [("x-api-key", good.clone()), ("authorization", bearer("svc_live_v1_x"))] {
            for part in &signed[1..] {
                for lines in [[(name, &*value), (part, "")], [(part, "1"), (name, &value)]] {
                    let refused = read(&lines).unwrap_err();
                    assert!(matches!(refused, (400, Error::Invalid { field: "credentials", .. })));
                }
            }
        }
        for foreign in ["Bearer sk-abc", "Basic eDp5", ""] {
            assert!(read(&[("authorization", foreign), ("x-api-key", &good)]).is_ok(), "{foreign}");
        }
    }

    #[test]
    fn a_header_that_shows_a_key_is_known_wherever_the_key_stands() {
        let shows =
            |name: &str, value: &str| shows_key(Name::of(name.as_bytes()), value.as_bytes(), &format());
        for value in [
            "svc_live_v1_",
            "Bearer svc_live_v1_x",
            "Bearer x,svc_live_v1_y",
            "Token a=\"svc_live_v1_z\"",
            "Bearer:svc_live_v1_x",
            "xsvc_live_v1_",
        ] {
            assert!(shows("authorization", value) && shows("x-api-key", value), "{value}");
        }
        for value in ["", "Bearer eyJhbGciOi", "Bearer svc_live_v2_"] {
            assert!(!shows("authorization", value), "{value}");
        }
        assert!(!shows("x-note", "svc_live_v1_"));
    }

    #[test]
    fn every_header_that_is_read_as_a_credential_shows_one() {
        for line in [
            ("authorization", "Basic svc_live_v1_"),
            ("x-api-key", "svc_live_v1_x"),
            ("x-agent-signature", ""),
            ("x-agent-nonce", "x"),
            ("x-agent-timestamp", "1"),
            ("signature", "x"),
            ("signature-input", "x"),
        ] {
            assert!(shows_credential(&headers(&[("accept", "*/*"), line]), &format()), "{line:?}");
        }
        let others = [("authorization", "Bearer eyJhbGciOi"), ("x-api-key", "x"), ("x-agent-id", "1")];
        assert!(!shows_credential(&headers(&others), &format()));
    }
}
