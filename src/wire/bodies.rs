//! Request bodies and queries of the contract, parsed into the domain's types or refused with the field that is wrong.
//!
//! Fields that an endpoint does not know are ignored, as JSON APIs do; a field that stands twice is refused, because
//! two readers might take different ones. Order of complaints: the order of the contract's tables.

use std::{borrow::Cow, fmt::Display, ops::RangeInclusive};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::domain::{
    AgentId, ApiKeyFormat, GRACE_SECS_MAX, KeyName, KeyTerms, Nonce, SignatureBytes, SignatureFormat,
    TenantList, UnixSeconds, WebOrigin,
};
use crate::error::Error;
use crate::pipeline::{Credential, KeyWish, ProfileRead, SignedRequest};
use crate::wire::received::{echo, echo_text};

/// The longest body, in bytes; a longer one is 413.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024;

/// The problem of an id or a nonce, before its reason.
const NOT_NUMERIC: &str = "is not a numeric string";

/// Beyond 2^53 a JSON number is no longer exact; so far ahead it is outside any window anyway.
const EXACT_NUMBER_MAX: f64 = 9_007_199_254_740_992.0;

/// The fields that endpoints know, as they came.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<T> {
    api_key: Option<T>,
    agent_id: Option<T>,
    origin: Option<T>,
    signature: Option<T>,
    nonce: Option<T>,
    timestamp: Option<T>,
    declared_endpoint: Option<T>,
    name: Option<T>,
    expires_in: Option<T>,
    tenants: Option<T>,
    grace_seconds: Option<T>,
}

/// Parses the body of `POST /verify`, with the application's origin if it is given.
pub(crate) fn parse_verify(
    body: &[u8],
    format: &ApiKeyFormat,
) -> Result<(Credential, Option<WebOrigin>), Error> {
    let fields = Fields::parse(body)?;
    let api_key = Field::in_body("apiKey", fields.api_key);
    let digest = format
        .digest(api_key.text()?.as_bytes())
        .ok_or_else(|| api_key.invalid("is not an API key of this service"))?;
    let named = Field::in_body("agentId", fields.agent_id).optional(Field::agent)?;
    let origin = Field::in_body("origin", fields.origin).optional(Field::origin)?;
    Ok((Credential::Key { digest, named }, origin))
}

/// Parses the body of `POST /verify/signature`.
pub(crate) fn parse_signed(body: &[u8], format: SignatureFormat) -> Result<SignedRequest, Error> {
    Fields::parse(body)?.signed(format)
}

/// Parses the body of generate, or of rotate, which alone reads `graceSeconds`. A key's life has so many seconds at most.
pub(crate) fn parse_key_wish(
    body: &[u8],
    format: SignatureFormat,
    (expires_secs_max, rotates): (u64, bool),
) -> Result<(SignedRequest, KeyWish), Error> {
    let fields = Fields::parse(body)?;
    let signed = fields.signed(format)?;
    let declared = Field::in_body("declaredEndpoint", fields.declared_endpoint);
    let origin = declared.optional(Field::origin)?;
    let seconds = |name, raw, range| Field::in_body(name, raw).optional(|field| field.seconds(&range));
    let terms = KeyTerms {
        name: fields.key_name()?,
        expires_in_secs: seconds("expiresIn", fields.expires_in, 1..=expires_secs_max)?,
        tenants: Field::in_body("tenants", fields.tenants).optional(Field::tenants)?,
        grace_secs: seconds("graceSeconds", fields.grace_seconds.filter(|_| rotates), 0..=GRACE_SECS_MAX)?
            .unwrap_or(0),
    };
    Ok((signed, KeyWish { origin, terms }))
}

/// Parses the body of `DELETE /keys`: with a name it is for that key alone.
pub(crate) fn parse_revocation(
    body: &[u8],
    format: SignatureFormat,
) -> Result<(SignedRequest, Option<KeyName>), Error> {
    let fields = Fields::parse(body)?;
    Ok((fields.signed(format)?, fields.key_name()?))
}

/// Parses the body of `POST /profile`.
pub(crate) fn parse_profile_read(body: &[u8], format: SignatureFormat) -> Result<ProfileRead, Error> {
    let fields = Fields::parse(body)?;
    let agent = Field::in_body("agentId", fields.agent_id).agent()?;
    let signature = Field::in_body("signature", fields.signature).signature(format)?;
    let signed_at = Field::in_body("timestamp", fields.timestamp).timestamp()?;
    Ok(ProfileRead { agent, signed_at, signature })
}

/// Parses the query of `GET /keys/status`.
/// Error: [`Error::Invalid`] when `agentId` is absent, stands twice, or is not a numeric string.
pub(crate) fn parse_status_query(query: Option<&str>) -> Result<AgentId, Error> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut named = pairs.filter(|(name, _)| name == "agentId").map(|(_, value)| value);
    let text = named.next();
    let agent = Field::in_header("agentId", text.as_deref());
    if named.next().is_some() { Err(agent.invalid("stands more than once")) } else { agent.agent() }
}

impl<'a> Fields<&'a RawValue> {
    fn parse(body: &'a [u8]) -> Result<Self, Error> {
        let whole = |problem: String| Error::Invalid {
            field: "body",
            received: Value::Null,
            problem: problem.into(),
        };
        // The derived reader would take an array for a struct.
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        if first != Some(&b'{') {
            return Err(whole("is not a JSON object".to_owned()));
        }
        // Fields that nobody reads must be text as well (RFC 8259, section 8.1).
        let text = std::str::from_utf8(body).map_err(|_| whole("is not UTF-8 text".to_owned()))?;
        serde_json::from_str(text).map_err(|error| whole(format!("is not a JSON object: {error}")))
    }

    fn signed(&self, format: SignatureFormat) -> Result<SignedRequest, Error> {
        let agent = Field::in_body("agentId", self.agent_id);
        let signature = Field::in_body("signature", self.signature);
        let nonce = Field::in_body("nonce", self.nonce);
        signed_request([agent, signature, nonce, Field::in_body("timestamp", self.timestamp)], format)
    }

    fn key_name(&self) -> Result<Option<KeyName>, Error> {
        let name = Field::in_body("name", self.name);
        name.optional(|field| KeyName::parse(&field.text()?).map_err(|problem| field.invalid(problem)))
    }
}

/// One field, under the name that the contract gives it, as it came: in a body or in a header, if at all.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    name: &'static str,
    json: Option<&'a RawValue>,
    header: Option<&'a str>,
}

impl<'a> Field<'a> {
    const fn in_body(name: &'static str, json: Option<&'a RawValue>) -> Self {
        Self { name, json, header: None }
    }

    /// One of a header, or of a query.
    pub(super) const fn in_header(name: &'static str, header: Option<&'a str>) -> Self {
        Self { name, json: None, header }
    }

    pub(super) fn invalid(&self, problem: impl Into<Cow<'static, str>>) -> Error {
        let holds_secret = matches!(self.name, "apiKey" | "signature");
        let received = match self.header {
            Some(text) => echo_text(text, holds_secret).into(),
            None => echo(self.json, holds_secret),
        };
        Error::Invalid { field: self.name, received, problem: problem.into() }
    }

    /// The value of a field that may be absent.
    pub(super) fn optional<T>(&self, read: impl Fn(&Self) -> Result<T, Error>) -> Result<Option<T>, Error> {
        if self.json.is_none() && self.header.is_none() { Ok(None) } else { read(self).map(Some) }
    }

    /// The text without a copy, unless it has escapes.
    fn text(&self) -> Result<Cow<'a, str>, Error> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        if let Some(text) = self.header {
            return Ok(text.into());
        }
        let raw = self.json.ok_or_else(|| self.invalid("is required"))?;
        let text: Result<Text<'a>, _> = serde_json::from_str(raw.get());
        text.map(|text| text.0).map_err(|_| self.invalid("is not a string"))
    }

    /// The value as `parse` reads its text, whose error is a reason after a phrase.
    pub(super) fn parsed<T, E: Display>(
        &self,
        parse: impl Fn(&str) -> Result<T, E>,
        phrase: &str,
    ) -> Result<T, Error> {
        parse(&self.text()?).map_err(|error| self.invalid(format!("{phrase}: {error}")))
    }

    pub(super) fn agent(&self) -> Result<AgentId, Error> {
        self.parsed(AgentId::parse, NOT_NUMERIC)
    }

    /// The web origin of a URL.
    pub(super) fn origin(&self) -> Result<WebOrigin, Error> {
        self.parsed(WebOrigin::parse, "is wrong")
    }

    /// A whole number of seconds in this range.
    fn seconds(&self, range: &RangeInclusive<u64>) -> Result<u64, Error> {
        let problem =
            || format!("is not a whole number of seconds from {} to {}", range.start(), range.end());
        let number = self.json.and_then(|raw| serde_json::from_str(raw.get()).ok());
        number.filter(|number| range.contains(number)).ok_or_else(|| self.invalid(problem()))
    }

    fn tenants(&self) -> Result<TenantList, Error> {
        let ids = self.json.and_then(|raw| serde_json::from_str::<Vec<String>>(raw.get()).ok());
        let ids = ids.unwrap_or_default();
        TenantList::parse(ids.iter().map(String::as_str)).map_err(|problem| self.invalid(problem))
    }

    fn signature(&self, format: SignatureFormat) -> Result<SignatureBytes, Error> {
        format.parse(&self.text()?).map_err(|problem| self.invalid(problem))
    }

    fn timestamp(&self) -> Result<UnixSeconds, Error> {
        let number: Value = match self.json {
            Some(raw) => {
                serde_json::from_str(raw.get()).map_err(|_| self.invalid("is not a number of this size"))?
            }
            None => serde_json::from_str(&self.text()?).unwrap_or(Value::Null),
        };
        whole_seconds(&number).map_err(|problem| self.invalid(problem))
    }
}

/// A signed request out of `agentId`, `signature`, `nonce` and `timestamp`.
pub(super) fn signed_request(
    [agent, signature, nonce, timestamp]: [Field<'_>; 4],
    format: SignatureFormat,
) -> Result<SignedRequest, Error> {
    let agent = agent.agent()?;
    let signature = signature.signature(format)?;
    let nonce = nonce.parsed(Nonce::parse, NOT_NUMERIC)?;
    Ok(SignedRequest { agent, nonce, signed_at: timestamp.timestamp()?, signature })
}

/// A timestamp of the contract: a number of whole seconds that is not negative.
fn whole_seconds(number: &Value) -> Result<UnixSeconds, &'static str> {
    let Value::Number(number) = number else { return Err("is not a number") };
    if let Some(seconds) = number.as_u64() {
        return Ok(UnixSeconds(seconds));
    }
    match number.as_f64() {
        Some(seconds) if seconds < 0.0 => Err("is negative"),
        Some(seconds) if seconds.fract() != 0.0 => Err("is not a whole number of seconds"),
        Some(seconds) if seconds < EXACT_NUMBER_MAX => Ok(UnixSeconds(seconds as u64)),
        Some(_) => Ok(UnixSeconds(u64::MAX)),
        None => Err("is not a number"),
    }
}

#[cfg(test)]
mod tests;
