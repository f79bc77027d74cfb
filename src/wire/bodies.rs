//! Request bodies and queries of the contract, parsed into the domain's types or refused with the field that is wrong.
//!
//! Fields that an endpoint does not know are ignored, as JSON APIs do; a field that stands twice is refused, because
//! two readers might take different ones. Order of complaints: the order of the contract's tables.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::domain::agent_id::AgentId;
use crate::domain::api_key::{ApiKeyFormat, KeyDigest};
use crate::domain::endpoint::{Endpoint, WebOrigin};
use crate::domain::freshness::UnixSeconds;
use crate::domain::nonce::Nonce;
use crate::domain::signature::{SignatureBytes, SignatureFormat};
use crate::pipeline::credential::{ProfileRead, SignedRequest};
use crate::wire::received::{echo, echo_text};

/// The longest body, in bytes; a longer one is 413.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024;

/// Beyond 2^53 a JSON number is no longer exact; so far ahead it is outside any window anyway.
const EXACT_NUMBER_MAX: f64 = 9_007_199_254_740_992.0;

/// A body or query that is not of the contract's shape: `VALIDATION_ERROR`. Names the first field that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Invalid {
    /// The field that is wrong; `body` when it is the whole.
    pub(crate) field: &'static str,
    /// What came in, safe to echo.
    pub(crate) received: Value,
    /// What is wrong with it, as a phrase after the field's name.
    pub(crate) problem: Cow<'static, str>,
}

/// `POST /verify`.
#[derive(Debug)]
pub(crate) struct VerifyBody {
    /// The digest of the key that was sent.
    pub(crate) digest: KeyDigest,
    /// The agent that was named.
    pub(crate) agent: Option<AgentId>,
    /// The application's origin.
    pub(crate) origin: Option<WebOrigin>,
}

/// `POST /verify/signature` and `/keys/*`.
#[derive(Debug)]
pub(crate) struct SignedBody {
    /// What the owner signed.
    pub(crate) signed: SignedRequest,
    /// What the key is to be used for; only generate and rotate read it.
    pub(crate) declared_endpoint: Option<Endpoint>,
}

/// Every field that any endpoint knows, as it came.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow)]
    api_key: Option<&'a RawValue>,
    #[serde(borrow)]
    agent_id: Option<&'a RawValue>,
    #[serde(borrow)]
    origin: Option<&'a RawValue>,
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    #[serde(borrow)]
    nonce: Option<&'a RawValue>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    declared_endpoint: Option<&'a RawValue>,
}

impl VerifyBody {
    /// Parses the body of `POST /verify`.
    pub(crate) fn parse(body: &[u8], format: &ApiKeyFormat) -> Result<Self, Invalid> {
        let fields = Fields::parse(body)?;
        let api_key = Field { name: "apiKey", raw: fields.api_key, holds_secret: true };
        let digest = format
            .digest(api_key.text()?.as_bytes())
            .ok_or_else(|| api_key.invalid("is not an API key of this service"))?;
        let agent_id = Field::plain("agentId", fields.agent_id);
        let agent = agent_id.optional(|field| field.agent())?;
        let origin = Field::plain("origin", fields.origin);
        let origin = origin.optional(|field| {
            WebOrigin::parse(&field.text()?).map_err(|error| field.invalid(format!("is wrong: {error}")))
        })?;
        Ok(Self { digest, agent, origin })
    }
}

impl SignedBody {
    /// Parses the body of a signed request without `declaredEndpoint`.
    pub(crate) fn parse(body: &[u8], format: SignatureFormat) -> Result<Self, Invalid> {
        Ok(Self { signed: Fields::parse(body)?.signed(format)?, declared_endpoint: None })
    }

    /// Parses the body of a signed request that may declare an endpoint.
    pub(crate) fn parse_with_endpoint(body: &[u8], format: SignatureFormat) -> Result<Self, Invalid> {
        let fields = Fields::parse(body)?;
        let signed = fields.signed(format)?;
        let declared = Field::plain("declaredEndpoint", fields.declared_endpoint);
        let declared_endpoint = declared.optional(|field| {
            Endpoint::parse(&field.text()?).map_err(|error| field.invalid(format!("is wrong: {error}")))
        })?;
        Ok(Self { signed, declared_endpoint })
    }
}

/// Parses the body of `POST /profile`.
pub(crate) fn parse_profile_read(body: &[u8], format: SignatureFormat) -> Result<ProfileRead, Invalid> {
    let fields = Fields::parse(body)?;
    let agent = Field::plain("agentId", fields.agent_id).agent()?;
    let signature = fields.signature(format)?;
    let signed_at = Field::plain("timestamp", fields.timestamp).timestamp()?;
    Ok(ProfileRead { agent, signed_at, signature })
}

/// Parses the query of `GET /keys/status`.
/// Error: [`Invalid`] when `agentId` is absent, stands twice, or is not a numeric string.
pub(crate) fn parse_status_query(query: Option<&str>) -> Result<AgentId, Invalid> {
    let invalid = |received: Value, problem: &str| Invalid {
        field: "agentId",
        received,
        problem: problem.to_owned().into(),
    };
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut named = pairs.filter(|(name, _)| name == "agentId").map(|(_, value)| value);
    let text = named.next().ok_or_else(|| invalid(Value::Null, "is required"))?;
    let received = || Value::String(echo_text(&text, false));
    if named.next().is_some() {
        return Err(invalid(received(), "stands more than once"));
    }
    AgentId::parse(&text).map_err(|error| invalid(received(), &format!("is not a numeric string: {error}")))
}

impl<'a> Fields<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, Invalid> {
        let whole =
            |problem: String| Invalid { field: "body", received: Value::Null, problem: problem.into() };
        // The derived reader would take an array for a struct.
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        if first != Some(&b'{') {
            return Err(whole("is not a JSON object".to_owned()));
        }
        // Fields that nobody reads must be text as well (RFC 8259, section 8.1).
        let text = std::str::from_utf8(body).map_err(|_| whole("is not UTF-8 text".to_owned()))?;
        serde_json::from_str(text).map_err(|error| whole(format!("is not a JSON object: {error}")))
    }

    fn signed(&self, format: SignatureFormat) -> Result<SignedRequest, Invalid> {
        let agent = Field::plain("agentId", self.agent_id).agent()?;
        let signature = self.signature(format)?;
        let nonce = Field::plain("nonce", self.nonce);
        let nonce = Nonce::parse(&nonce.text()?)
            .map_err(|error| nonce.invalid(format!("is not a numeric string: {error}")))?;
        let signed_at = Field::plain("timestamp", self.timestamp).timestamp()?;
        Ok(SignedRequest { agent, nonce, signed_at, signature })
    }

    fn signature(&self, format: SignatureFormat) -> Result<SignatureBytes, Invalid> {
        let field = Field { name: "signature", raw: self.signature, holds_secret: true };
        format.parse(&field.text()?).map_err(|problem| field.invalid(problem))
    }
}

/// One field of a body, as it came.
#[derive(Clone, Copy)]
struct Field<'a> {
    name: &'static str,
    raw: Option<&'a RawValue>,
    holds_secret: bool,
}

impl<'a> Field<'a> {
    const fn plain(name: &'static str, raw: Option<&'a RawValue>) -> Self {
        Self { name, raw, holds_secret: false }
    }

    fn invalid(&self, problem: impl Into<Cow<'static, str>>) -> Invalid {
        Invalid { field: self.name, received: echo(self.raw, self.holds_secret), problem: problem.into() }
    }

    fn optional<T>(&self, read: impl Fn(&Self) -> Result<T, Invalid>) -> Result<Option<T>, Invalid> {
        self.raw.map(|_| read(self)).transpose()
    }

    fn present(&self) -> Result<&'a RawValue, Invalid> {
        self.raw.ok_or_else(|| self.invalid("is required"))
    }

    /// The text without a copy, unless it has escapes.
    fn text(&self) -> Result<Cow<'a, str>, Invalid> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        let text: Result<Text<'a>, _> = serde_json::from_str(self.present()?.get());
        text.map(|text| text.0).map_err(|_| self.invalid("is not a string"))
    }

    fn agent(&self) -> Result<AgentId, Invalid> {
        AgentId::parse(&self.text()?)
            .map_err(|error| self.invalid(format!("is not a numeric string: {error}")))
    }

    fn timestamp(&self) -> Result<UnixSeconds, Invalid> {
        let number: Value = serde_json::from_str(self.present()?.get())
            .map_err(|_| self.invalid("is not a number of this size"))?;
        whole_seconds(&number).map_err(|problem| self.invalid(problem))
    }
}

/// A timestamp of the contract: a number of whole seconds that is not negative.
pub(super) fn whole_seconds(number: &Value) -> Result<UnixSeconds, &'static str> {
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
