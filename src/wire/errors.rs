//! THE error table (contract, "Errors"): from cause to status, `errorType`, message and details, in the contract's
//! order. Every answer that is an error comes from here.

mod row;

use http::header::{ALLOW, CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::json;

use crate::domain::agent_id::AgentId;
use crate::domain::denial::Denial;
use crate::domain::quota::{Allowance, RetryAfter};
use crate::domain::tier::Tier;
use crate::pipeline::refusal::Refusal;
use crate::wire::answers::{Answer, rfc3339};
use crate::wire::bodies::{BODY_BYTES_MAX, Invalid};
use crate::wire::errors::row::Row;
use crate::wire::grpc;
use crate::wire::headers::{NO_STORE, OF_AGENT, OF_CLIENT, write_allowance, write_spent};

/// Why a request is answered with an error.
#[derive(Debug, Clone)]
pub(crate) enum ErrorCause {
    /// The body or query is not of the contract's shape.
    Invalid(Invalid),
    /// The pipeline let nobody through.
    Refused(Refusal),
    /// Something of ours failed that has no name in the contract.
    Internal,
    /// There is nothing at this path.
    NotFound,
    /// The path is known, the method is not its own.
    MethodNotAllowed {
        /// The methods that are, as `Allow` lists them.
        allow: &'static str,
    },
    /// The body is longer than [`BODY_BYTES_MAX`].
    PayloadTooLarge,
    /// The request's bytes are ambiguous or not HTTP; the connection is closed.
    Malformed {
        /// What is wrong with them, as a phrase.
        problem: &'static str,
    },
    /// The request took too long to arrive; the connection is closed.
    TooSlow,
    /// The request head is too long; the connection is closed.
    HeadTooLarge,
    /// The gateway knows no tenant of this host.
    UnknownHost,
    /// The tenant's rules let nobody pass here.
    Forbidden,
    /// A page of an origin that may not do this had its visitor's browser send it.
    OtherSite,
    /// Agents alone pass here, and the request shows no credential that is taken, or more than one.
    Unproven {
        /// What is wrong, as a sentence.
        problem: &'static str,
    },
    /// The body is longer than the tenant takes.
    UploadTooLarge {
        /// The tenant's limit.
        bytes_max: u64,
    },
    /// No upstream could be reached, or it gave no answer that can be read.
    Upstream,
    /// An upstream took too long.
    UpstreamTimeout,
    /// The request has passed this gateway before.
    Loop,
    /// The gateway is at one of its limits; nothing was sent to an upstream.
    Overloaded,
    /// The agent has as many requests under way as one may have; nothing was charged.
    TooManyInFlight {
        agent: AgentId,
        tier: Tier,
        /// Requests in a window, for that tier.
        limit: u32,
        /// How many it may have under way.
        max: u32,
    },
}

impl From<Invalid> for ErrorCause {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<Refusal> for ErrorCause {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl ErrorCause {
    /// The `errorType` of this cause, for metrics, and the answer to it at this Unix time in milliseconds.
    pub(crate) fn answer(&self, now_unix_millis: u64) -> (&'static str, Answer) {
        let (error_type, answer, _) = self.row().write(now_unix_millis);
        (error_type, answer)
    }

    /// The same with the headers of the gateway.
    pub(crate) fn gateway_answer(&self, now_unix_millis: u64) -> (&'static str, Answer) {
        let (error_type, mut answer, gateway_headers) = self.row().write(now_unix_millis);
        answer.headers_mut().extend(gateway_headers);
        (error_type, answer)
    }

    /// The same for a client that speaks gRPC: without a body.
    pub(crate) fn grpc_answer(&self) -> (&'static str, Answer) {
        let Row { status, error_type, message, details, mut headers, gateway_headers } = self.row();
        headers.extend(gateway_headers);
        grpc::write(status, error_type, &message, details.as_ref(), &mut headers);
        headers.insert(CACHE_CONTROL, NO_STORE);
        let mut answer = Answer::new(Vec::new());
        *answer.headers_mut() = headers;
        (error_type, answer)
    }

    /// True for a 401: another credential might do.
    pub(crate) const fn is_unauthenticated(&self) -> bool {
        matches!(
            self,
            Self::Unproven { .. }
                | Self::Refused(Refusal::Denied(
                    Denial::SignatureInvalid { .. } | Denial::InvalidApiKey { .. }
                ))
        )
    }

    #[expect(clippy::too_many_lines, reason = "it is one table")]
    fn row(&self) -> Row {
        match self {
            Self::Invalid(Invalid { field, received, problem }) => Row::new(
                StatusCode::BAD_REQUEST,
                "VALIDATION_ERROR",
                format!("{field} {problem}"),
                json!({ "field": field, "received": received }),
            ),
            Self::Refused(Refusal::Denied(denial)) => Row::of_denial(denial),
            Self::Refused(Refusal::Chain(fault)) => Row::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "RPC_ERROR",
                if fault.is_behind {
                    "The chain's nodes are behind what is known; try again later"
                } else {
                    "The chain can't be read at the moment; try again later"
                },
                json!({ "rpcUrl": &*fault.endpoint, "method": fault.method }),
            ),
            Self::Refused(Refusal::Store(_) | Refusal::Entropy(_) | Refusal::Unrecorded(_))
            | Self::Internal => Row::bare(
                StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL_ERROR",
                "The service failed to process the request; try again later",
            ),
            Self::NotFound => Row::bare(StatusCode::NOT_FOUND, "NOT_FOUND", "There is nothing at this path"),
            Self::MethodNotAllowed { allow } => Row::bare(
                StatusCode::METHOD_NOT_ALLOWED,
                "METHOD_NOT_ALLOWED",
                format!("This path takes {allow}"),
            )
            .with(ALLOW, HeaderValue::from_static(allow)),
            Self::PayloadTooLarge => Row::bare(
                StatusCode::PAYLOAD_TOO_LARGE,
                "PAYLOAD_TOO_LARGE",
                format!("The body is longer than {BODY_BYTES_MAX} bytes"),
            ),
            Self::Malformed { problem } => Row::new(
                StatusCode::BAD_REQUEST,
                "VALIDATION_ERROR",
                format!("The HTTP request is malformed: {problem}"),
                json!({ "field": "request", "received": null }),
            ),
            Self::TooSlow => Row::bare(
                StatusCode::REQUEST_TIMEOUT,
                "REQUEST_TIMEOUT",
                "The request took too long to arrive",
            ),
            Self::HeadTooLarge => Row::bare(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "REQUEST_HEADER_FIELDS_TOO_LARGE",
                "The request line and headers are too long",
            ),
            Self::UnknownHost => {
                Row::bare(StatusCode::NOT_FOUND, "NOT_FOUND", "No service here has this host name")
            }
            Self::Forbidden => Row::bare(StatusCode::FORBIDDEN, "FORBIDDEN", "Nobody may do this here"),
            Self::OtherSite => {
                Row::bare(StatusCode::FORBIDDEN, "FORBIDDEN", "A page of this origin may not do this")
            }
            Self::Unproven { problem } => {
                Row::unauthorized("INVALID_API_KEY", *problem, json!({ "agentId": null }))
            }
            Self::UploadTooLarge { bytes_max } => Row::bare(
                StatusCode::PAYLOAD_TOO_LARGE,
                "PAYLOAD_TOO_LARGE",
                format!("The body is longer than {bytes_max} bytes"),
            ),
            Self::Upstream => Row::bare(
                StatusCode::BAD_GATEWAY,
                "UPSTREAM_ERROR",
                "The service behind the gateway can't be reached, or its answer can't be read",
            ),
            Self::UpstreamTimeout => Row::bare(
                StatusCode::GATEWAY_TIMEOUT,
                "UPSTREAM_TIMEOUT",
                "The service behind the gateway took too long",
            ),
            Self::Loop => {
                Row::bare(StatusCode::LOOP_DETECTED, "LOOP_DETECTED", "The request has passed here before")
            }
            Self::Overloaded => Row::bare(
                StatusCode::SERVICE_UNAVAILABLE,
                "OVERLOADED",
                "The gateway has no room for the request at the moment; try again later",
            )
            .with(RETRY_AFTER, HeaderValue::from_static("1")),
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
        let mut row = Self::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", message, details);
        write_allowance(&mut row.headers, Allowance { limit, remaining: 0 });
        row.with(RETRY_AFTER, retry_after.seconds())
    }

    fn of_denial(denial: &Denial) -> Self {
        match denial {
            Denial::SignatureInvalid { agent, owner, recovered_signer, domain } => Self::unauthorized(
                "SIGNATURE_INVALID",
                format!("The signature is not the agent owner's for the EIP-712 domain of {domain}"),
                json!({
                    "agentId": agent.to_string(),
                    "owner": owner.to_checksum(None),
                    "recoveredSigner": recovered_signer.map(|signer| signer.to_checksum(None)),
                }),
            ),
            Denial::ReplayDetected { agent, nonce } => Self::new(
                StatusCode::BAD_REQUEST,
                "REPLAY_DETECTED",
                "The nonce was used before",
                json!({ "agentId": agent.to_string(), "nonce": nonce.to_string() }),
            ),
            Denial::TimestampRefused { agent, nonce } => Self::new(
                StatusCode::BAD_REQUEST,
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
                StatusCode::BAD_REQUEST,
                "REPLAY_DETECTED",
                format!("Nonces may have been lost: sign again at {} or later", rfc3339(*accepted_from)),
                json!({ "agentId": agent.to_string(), "nonce": nonce.to_string() }),
            )
            .with(RETRY_AFTER, retry_after.seconds()),
            Denial::AgentNotFound { agent } => Self::new(
                StatusCode::NOT_FOUND,
                "AGENT_NOT_FOUND",
                "The agent is not registered",
                json!({ "agentId": agent.to_string() }),
            ),
            Denial::InvalidApiKey { agent } => Self::unauthorized(
                "INVALID_API_KEY",
                "The API key is unknown, revoked or another agent's",
                json!({ "agentId": agent.as_ref().map(AgentId::to_string) }),
            ),
            Denial::KeyAlreadyExists { agent } => Self::new(
                StatusCode::CONFLICT,
                "KEY_ALREADY_EXISTS",
                "The agent has an API key already; rotate it, or revoke it first",
                json!({ "agentId": agent.to_string() }),
            ),
            Denial::RateLimited { agent, tier, limit, retry_after } => {
                let message = format!("The rate limit is reached; try again in {} s", retry_after.seconds());
                let mut row = Self::rate_limited(message, agent.as_ref(), *tier, *limit, *retry_after);
                let of = tier.map_or(OF_CLIENT, |_| OF_AGENT);
                write_spent(&mut row.gateway_headers, of, *limit, *retry_after);
                row
            }
            Denial::TierBlocked { agent, current, required, required_stake } => Self::new(
                StatusCode::FORBIDDEN,
                "TIER_BLOCKED",
                "The agent's stake does not give it the tier that is required",
                json!({
                    "agentId": agent.to_string(),
                    "currentTier": current.number(),
                    "requiredTier": required.number(),
                    "requiredStake": required_stake.to_string(),
                }),
            ),
            Denial::EndpointMismatch { agent } => Self::new(
                StatusCode::FORBIDDEN,
                "ENDPOINT_MISMATCH",
                "The request's origin is not the endpoint declared for the API key",
                json!({ "agentId": agent.to_string() }),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
