//! THE error table (contract, "Errors"): from cause to status, `errorType`, message and details, in the contract's
//! order. Every answer that is an error comes from here.

use http::header::{ALLOW, CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::{AgentId, Allowance, Denial, KeyName, MessageRefusal, Nonce, RetryAfter, Tier};
use crate::error::Error;
use crate::ports::ChainFault;
use crate::wire::answers::{
    self, Answer, COME_BACK, NO_STORE, OF_AGENT, OF_CLIENT, rfc3339, write_allowance, write_spent,
};
use crate::wire::grpc;

impl Error {
    /// The `errorType` of this cause, for metrics, and the answer to it at this Unix time in milliseconds.
    pub(crate) fn answer(&self, now_unix_millis: u64) -> (&'static str, Answer) {
        let (error_type, answer, _) = self.row().write(now_unix_millis);
        (error_type, answer)
    }

    /// The same with the headers of the gateway. A client of OAuth is told how to get a key, if one would do.
    pub(crate) fn gateway_answer(
        &self,
        now_unix_millis: u64,
        key_advice: Option<&str>,
    ) -> (&'static str, Answer) {
        let mut row = self.row();
        if let Some(advice) = key_advice.filter(|_| row.is_for_oauth) {
            row.message = format!("{}. {advice}", row.message);
        }
        let (error_type, mut answer, gateway_headers) = row.write(now_unix_millis);
        answer.headers_mut().extend(gateway_headers);
        (error_type, answer)
    }

    /// The same for a client that speaks gRPC: without a body.
    pub(crate) fn grpc_answer(&self) -> (&'static str, Answer) {
        let Row { status, error_type, message, details, mut headers, gateway_headers, .. } = self.row();
        headers.extend(gateway_headers);
        grpc::write(status, error_type, &message, details.as_ref(), &mut headers);
        headers.insert(CACHE_CONTROL, NO_STORE);
        let mut answer = Answer::new(Vec::new());
        *answer.headers_mut() = headers;
        (error_type, answer)
    }

    /// True for a 401: another credential might do.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        let is_bare = matches!(
            self,
            Self::Unproven { .. }
                | Self::Denied(Denial::SignatureInvalid { .. } | Denial::InvalidApiKey { .. })
        );
        is_bare || self.message_refusal().is_some_and(|refusal| kind_of(refusal).0 == 401)
    }

    /// The reason why a request's own signature does not count.
    pub(crate) const fn message_refusal(&self) -> Option<MessageRefusal> {
        if let Self::Denied(Denial::MessageRefused { refusal, .. }) = self {
            return Some(*refusal);
        }
        None
    }

    fn row(&self) -> Row {
        match self {
            Self::Invalid { field, received, problem } => Row::new(
                400,
                "VALIDATION_ERROR",
                format!("{field} {problem}"),
                json!({ "field": field, "received": received }),
            ),
            Self::Denied(denial) => Row::denied(denial),
            Self::Chain(fault) => Row::chain_fault(fault),
            Self::Unverified(fault) => Row {
                reason: Some(MessageRefusal::VerificationUnavailable.code()),
                ..Row::chain_fault(fault)
            },
            Self::Store(_) | Self::Entropy(_) | Self::Unrecorded(_) | Self::Internal => {
                Row::bare(500, "INTERNAL_ERROR", "The service failed to process the request; try again later")
            }
            Self::NotFound => Row::bare(404, "NOT_FOUND", "There is nothing at this path"),
            Self::MethodNotAllowed { allow } => {
                Row::bare(405, "METHOD_NOT_ALLOWED", format!("This path takes {allow}"))
                    .with(ALLOW, HeaderValue::from_str(allow).unwrap_or(HeaderValue::from_static("")))
            }
            Self::Malformed { problem } => Row::new(
                400,
                "VALIDATION_ERROR",
                format!("The HTTP request is malformed: {problem}"),
                json!({ "field": "request", "received": null }),
            ),
            Self::McpMessage { problem } => Row::new(
                400,
                "VALIDATION_ERROR",
                format!("The MCP message is refused: {problem}"),
                json!({ "field": "message", "received": null }),
            ),
            Self::TooSlow => Row::bare(408, "REQUEST_TIMEOUT", "The request took too long to arrive"),
            Self::HeadTooLarge => {
                Row::bare(431, "REQUEST_HEADER_FIELDS_TOO_LARGE", "The request line and headers are too long")
            }
            Self::NoLogin => {
                let message = "There is no OAuth here; give the client its agent's credential as a header";
                Row { is_for_oauth: true, ..Row::bare(404, "NOT_FOUND", message) }
            }
            Self::UnknownHost => Row::bare(404, "NOT_FOUND", "No service here has this host name"),
            Self::Forbidden => Row::bare(403, "FORBIDDEN", "Nobody may do this here"),
            Self::OtherSite => Row::bare(403, "FORBIDDEN", "A page of this origin may not do this"),
            Self::Unproven { problem } => {
                Row::unauthorized("INVALID_API_KEY", *problem, json!({ "agentId": null }))
            }
            Self::UploadTooLarge { bytes_max } => {
                Row::bare(413, "PAYLOAD_TOO_LARGE", format!("The body is longer than {bytes_max} bytes"))
            }
            Self::Upstream => Row::bare(
                502,
                "UPSTREAM_ERROR",
                "The service behind the gateway can't be reached, or its answer can't be read",
            ),
            Self::UpstreamTimeout => {
                Row::bare(504, "UPSTREAM_TIMEOUT", "The service behind the gateway took too long")
            }
            Self::Loop => Row::bare(508, "LOOP_DETECTED", "The request has passed here before"),
            Self::Overloaded => Row::bare(
                503,
                "OVERLOADED",
                "The gateway has no room for the request at the moment; try again later",
            ),
            Self::TooManyInFlight { agent, tier, limit, max } => Row::rate_limited(
                format!("The agent has {max} requests under way, as many as it may have at once"),
                Some(agent),
                Some(*tier),
                *limit,
                RetryAfter::from_micros(1_000_000),
            ),
        }
    }
}

/// Status and `errorType` of a refusal of a request's own signature.
const fn kind_of(refusal: MessageRefusal) -> (u16, &'static str) {
    match refusal {
        MessageRefusal::SignatureInputInvalid | MessageRefusal::SignatureTooLarge => {
            (400, "VALIDATION_ERROR")
        }
        MessageRefusal::NonceReused => (401, "REPLAY_DETECTED"),
        MessageRefusal::VerificationUnavailable => (503, "REPLAY_DETECTED"),
        MessageRefusal::SignatureMissing
        | MessageRefusal::NoAcceptableSignature
        | MessageRefusal::InvalidKeyid
        | MessageRefusal::UnsupportedChain
        | MessageRefusal::UnsupportedAccount
        | MessageRefusal::InvalidTime
        | MessageRefusal::RequestNotYetValid
        | MessageRefusal::RequestExpired
        | MessageRefusal::RequestValidityTooLong
        | MessageRefusal::InvalidNonce
        | MessageRefusal::InsufficientCoverage
        | MessageRefusal::ContentDigestRequired
        | MessageRefusal::BadContentDigest
        | MessageRefusal::NonceRequired
        | MessageRefusal::UnsupportedAlgorithm
        | MessageRefusal::BadSignature
        | MessageRefusal::Compact
        | MessageRefusal::PrincipalNotAllowed => (401, "SIGNATURE_INVALID"),
    }
}

impl Row {
    /// As the contract has it, rule 2 of "Rate limiting".
    fn rate_limited(
        message: String,
        agent: Option<&AgentId>,
        tier: Option<Tier>,
        limit: u32,
        retry_after: RetryAfter,
    ) -> Self {
        let details = json!({
            "agentId": agent.map(AgentId::to_string),
            "tier": tier.map(Tier::number),
            "limit": limit,
            "retryAfter": retry_after.seconds(),
        });
        let mut row = Self::new(429, "RATE_LIMITED", message, details);
        write_allowance(&mut row.headers, Allowance { limit, remaining: 0 });
        row.with(RETRY_AFTER, retry_after.seconds())
    }

    fn chain_fault(fault: &ChainFault) -> Self {
        Self::new(
            503,
            "RPC_ERROR",
            if fault.is_behind {
                "The chain's nodes are behind what is known; try again later"
            } else {
                "The chain can't be read at the moment; try again later"
            },
            json!({ "rpcUrl": &*fault.endpoint, "method": fault.method }),
        )
    }

    /// As ERC-8128 has it, section 6.
    fn message_refused(
        agent: Option<&AgentId>,
        refusal: MessageRefusal,
        retry_after: Option<RetryAfter>,
    ) -> Self {
        let (code, (status, error_type)) = (refusal.code(), kind_of(refusal));
        let details = match status {
            400 => json!({ "field": "Signature-Input", "received": null }),
            _ => json!({ "agentId": agent.map(AgentId::to_string) }),
        };
        let is_compact = refusal == MessageRefusal::Compact;
        let form = if is_compact { "; it is compact (ERC-2098), and all 65 bytes are needed" } else { "" };
        let message = format!("The request's signature is refused: {}{form}", code.replace('_', " "));
        let row = Self { reason: Some(code), ..Self::new(status, error_type, message, details) };
        match retry_after {
            Some(retry_after) => row.with(RETRY_AFTER, retry_after.seconds()),
            None => row,
        }
    }

    fn denied(denial: &Denial) -> Self {
        let of = |agent: &AgentId| json!({ "agentId": agent.to_string() });
        let with_nonce = |agent: &AgentId, nonce: &Nonce| json!({ "agentId": agent.to_string(), "nonce": nonce.to_string() });
        match denial {
            Denial::SignatureInvalid { agent, owner, recovered_signer, domain, own_type } => {
                Self::unauthorized(
                    "SIGNATURE_INVALID",
                    format!(
                        "The signature is not the agent owner's for the EIP-712 domain of {domain}{}",
                        own_type.iter().map(|own_type| format!(", {own_type}")).collect::<String>()
                    ),
                    json!({
                        "agentId": agent.to_string(),
                        "owner": owner.to_checksum(None),
                        "recoveredSigner": recovered_signer.map(|signer| signer.to_checksum(None)),
                    }),
                )
            }
            Denial::ReplayDetected { agent, nonce } => {
                Self::new(400, "REPLAY_DETECTED", "The nonce was used before", with_nonce(agent, nonce))
            }
            Denial::TimestampRefused { agent, nonce } => Self::new(
                400,
                "REPLAY_DETECTED",
                "The timestamp is too old, or too far ahead of the service's clock",
                match nonce {
                    Some(nonce) => json!({
                        "agentId": agent.to_string(), "nonce": nonce.to_string(), "field": "timestamp",
                    }),
                    None => json!({ "agentId": agent.to_string(), "field": "timestamp" }),
                },
            ),
            Denial::NonceForgotten { agent, nonce, accepted_from, retry_after } => Self::new(
                400,
                "REPLAY_DETECTED",
                format!("Nonces may have been lost: sign again at {} or later", rfc3339(*accepted_from)),
                with_nonce(agent, nonce),
            )
            .with(RETRY_AFTER, retry_after.seconds()),
            Denial::MessageRefused { agent, refusal, retry_after } => {
                Self::message_refused(agent.as_ref(), *refusal, *retry_after)
            }
            Denial::AgentNotFound { agent } => {
                Self::new(404, "AGENT_NOT_FOUND", "The agent is not registered", of(agent))
            }
            Denial::InvalidApiKey { agent } => Self::unauthorized(
                "INVALID_API_KEY",
                "The API key is unknown, revoked or another agent's",
                json!({ "agentId": agent.as_ref().map(AgentId::to_string) }),
            ),
            Denial::KeyAlreadyExists { agent } => Self::new(
                409,
                "KEY_ALREADY_EXISTS",
                "The agent has an API key already; rotate it, or revoke it first",
                of(agent),
            ),
            Denial::NoSuchKey { name, .. } => Self::new(
                400,
                "VALIDATION_ERROR",
                "name has to be that of a key of the agent",
                json!({ "field": "name", "received": name.as_ref().map(KeyName::to_string) }),
            ),
            Denial::RateLimited { agent, tier, limit, retry_after } => {
                let message = format!("The rate limit is reached; try again in {} s", retry_after.seconds());
                let mut row = Self::rate_limited(message, agent.as_ref(), *tier, *limit, *retry_after);
                let of = tier.map_or(OF_CLIENT, |_| OF_AGENT);
                write_spent(&mut row.gateway_headers, of, *limit, *retry_after);
                row
            }
            Denial::TierBlocked { agent, current, required, required_stake } => {
                let mut details = json!({
                    "agentId": agent.to_string(),
                    "currentTier": current.number(),
                    "requiredTier": required.number(),
                });
                if let (Some(stake), Some(fields)) = (required_stake, details.as_object_mut()) {
                    fields.insert("requiredStake".to_owned(), stake.to_string().into());
                }
                let message = match required_stake {
                    Some(_) => "The agent's stake does not give it the tier that is required",
                    None => "The agent does not have the tier that is required",
                };
                Self::new(403, "TIER_BLOCKED", message, details)
            }
            Denial::EndpointMismatch { agent } => Self::new(
                403,
                "ENDPOINT_MISMATCH",
                "The request's origin is not the endpoint declared for the API key",
                of(agent),
            ),
        }
    }
}

/// The credential that an unproven client may show at the gateway (RFC 9110, section 11.6.1).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"agents\"");

pub(super) struct Row {
    pub(super) status: u16,
    pub(super) error_type: &'static str,
    pub(super) message: String,
    pub(super) details: Option<Value>,
    /// The stable name of the reason, where there are several of one type.
    pub(super) reason: Option<&'static str>,
    /// True if clients of OAuth read it, which show no other message than their own field's (RFC 6749, section 5.2).
    pub(super) is_for_oauth: bool,
    /// Beside those of every answer.
    pub(super) headers: HeaderMap,
    /// Headers that the gateway adds.
    pub(super) gateway_headers: HeaderMap,
}

/// The body of every error.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorBody<'a> {
    error: &'a str,
    error_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(rename = "error_description", skip_serializing_if = "Option::is_none")]
    error_description: Option<&'a str>,
    timestamp: u64,
}

impl Row {
    pub(super) fn new(
        status: u16,
        error_type: &'static str,
        message: impl Into<String>,
        details: Value,
    ) -> Self {
        Self { details: Some(details), ..Self::bare(status, error_type, message) }
    }

    pub(super) fn bare(status: u16, error_type: &'static str, message: impl Into<String>) -> Self {
        let (mut headers, gateway_headers) = (HeaderMap::with_capacity(8), HeaderMap::new());
        if matches!(status, 500 | 503) {
            headers.insert(RETRY_AFTER, COME_BACK);
        }
        Self {
            status,
            error_type,
            message: message.into(),
            details: None,
            reason: None,
            is_for_oauth: false,
            headers,
            gateway_headers,
        }
    }

    pub(super) fn unauthorized(error_type: &'static str, message: impl Into<String>, details: Value) -> Self {
        let mut row = Self::new(401, error_type, message, details);
        row.gateway_headers.insert(WWW_AUTHENTICATE, CHALLENGE);
        row
    }

    pub(super) fn with(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.insert(name, value.into());
        self
    }

    /// The `errorType`, the answer, and the headers that the gateway adds to it.
    pub(super) fn write(self, now_unix_millis: u64) -> (&'static str, Answer, HeaderMap) {
        let body = ErrorBody {
            error: &self.message,
            error_type: self.error_type,
            details: self.details.as_ref(),
            reason: self.reason,
            error_description: self.is_for_oauth.then_some(&self.message),
            timestamp: now_unix_millis,
        };
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (self.error_type, answers::json(status, self.headers, &body), self.gateway_headers)
    }
}

#[cfg(test)]
mod tests;
