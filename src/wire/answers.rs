//! Successful answers of the contract, and the headers that answers have.

use std::time::{Duration, UNIX_EPOCH};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::Value;

use crate::domain::{AgentId, Allowance, Eip712Domain, KeyOperation, MINUTE_MICROS, RetryAfter, UnixSeconds};
use crate::http1::{Lines, writing::write_decimal};
use crate::pipeline::{Health, IssuedKey, KeyStatus, Report};

/// Maximum requests per window.
pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");

/// Requests left in the current window.
pub(crate) const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

/// The policy that limits an agent, in the IETF's fields (draft-ietf-httpapi-ratelimit-headers).
pub(crate) const OF_AGENT: &str = "agent";

/// The policy that limits a client network.
pub(crate) const OF_CLIENT: &str = "client";

/// The window that the gateway's limits count, in seconds.
const WINDOW_SECS: u64 = MINUTE_MICROS / 1_000_000;

/// The type of our bodies.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The seconds after which a client may come back to a fault or to a full gateway: so often the service asks node and store again.
pub(crate) const COME_BACK: HeaderValue = HeaderValue::from_static("1");

/// Answers hold keys and moments: nothing of them may be kept on the way.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// How the contract and HTTP's own documents spell a header name; HTTP compares names without regard to case.
pub(crate) fn contract_spelling(name: &HeaderName) -> Option<&'static str> {
    match name.as_str() {
        "x-ratelimit-limit" => Some("X-RateLimit-Limit"),
        "x-ratelimit-remaining" => Some("X-RateLimit-Remaining"),
        "retry-after" => Some("Retry-After"),
        "allow" => Some("Allow"),
        "ratelimit" => Some("RateLimit"),
        "ratelimit-policy" => Some("RateLimit-Policy"),
        "www-authenticate" => Some("WWW-Authenticate"),
        "link" => Some("Link"),
        "x-request-id" => Some("X-Request-Id"),
        _ => None,
    }
}

/// A number as a header's value. Digits are always valid. With the header library's own conversion `/verify` takes 1,200 instructions more
/// in the program that `make instructions` counts.
fn number(number: u64) -> HeaderValue {
    let mut digits = Vec::new();
    write_decimal(number, &mut digits);
    HeaderValue::try_from(digits).unwrap_or(HeaderValue::from_static(""))
}

/// Writes the headers of a success.
pub(crate) fn write_allowance(headers: &mut HeaderMap, allowance: Allowance) {
    headers.insert(RATE_LIMIT, number(allowance.limit.into()));
    headers.insert(RATE_REMAINING, number(allowance.remaining.into()));
}

/// Writes the IETF's fields of a limit that is used up, beside the contract's.
pub(crate) fn write_spent(headers: &mut HeaderMap, of: &str, limit: u32, retry_after: RetryAfter) {
    headers.set("ratelimit-policy", policy(of, limit).as_bytes());
    headers.set("ratelimit", format!("\"{of}\";r=0;t={}", retry_after.seconds()).as_bytes());
}

/// The header values that answers give of one quota.
#[derive(Debug, Clone)]
pub(crate) struct QuotaHeaders {
    limit: String,
    policy: String,
    /// The beginning of the field that says how much is left.
    left: String,
}

impl QuotaHeaders {
    /// For a policy of so many requests a minute.
    pub(crate) fn new(of: &str, limit: u32) -> Self {
        Self { limit: limit.to_string(), policy: policy(of, limit), left: format!("\"{of}\";r=") }
    }

    /// Writes the headers of an admitted request, as the contract and the IETF spell them.
    pub(crate) fn write(&self, remaining: u32, lines: &mut impl Lines) {
        lines.set("X-RateLimit-Limit", self.limit.as_bytes());
        lines.line("X-RateLimit-Remaining", |out| write_decimal(remaining.into(), out));
        lines.set("RateLimit-Policy", self.policy.as_bytes());
        lines.line("RateLimit", |out| {
            out.extend_from_slice(self.left.as_bytes());
            write_decimal(remaining.into(), out);
        });
    }
}

fn policy(of: &str, limit: u32) -> String {
    format!("\"{of}\";q={limit};w={WINDOW_SECS}")
}

/// A whole answer.
pub(crate) type Answer = Response<Vec<u8>>;

/// A size that most bodies fit into.
const USUAL_BODY_BYTES: usize = 1_024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyResult<'a> {
    api_key: &'a str,
    agent_id: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenants: Option<Vec<&'a str>>,
}

/// 201 of generate (contract, "POST /keys/generate"), or 200 of rotate ("POST /keys/rotate"), after which the old key is good for so
/// many seconds. Terms that the key has not are left out.
pub(crate) fn key_shown(issued: &IssuedKey, grace_secs: Option<u64>) -> Answer {
    let (status, done) = match grace_secs {
        None => (StatusCode::CREATED, "created. Store it".to_owned()),
        Some(0) => (StatusCode::OK, "rotated; the old key is invalid from now on. Store this one".to_owned()),
        Some(secs) => {
            (StatusCode::OK, format!("rotated; the old key is invalid in {secs} s. Store this one"))
        }
    };
    let body = KeyResult {
        api_key: issued.key.reveal(),
        agent_id: issued.agent.to_string(),
        message: format!("API key {done} now: it is not shown again."),
        name: issued.made.name.as_ref().map(ToString::to_string),
        expires_at: issued.made.ends,
        tenants: issued.tenants.as_ref().map(|tenants| tenants.ids().collect()),
    };
    success(status, &body, Some(issued.allowance))
}

/// 200 of revoke (contract, "DELETE /keys").
pub(crate) fn key_revoked(agent: AgentId, allowance: Allowance) -> Answer {
    let body = serde_json::json!({ "success": true, "agentId": agent.to_string() });
    success(StatusCode::OK, &body, Some(allowance))
}

/// 200 of status (contract, "GET /keys/status").
pub(crate) fn key_status(agent_id: &str, status: &KeyStatus) -> Answer {
    let body = serde_json::json!({ "hasKey": status.has_key, "agentId": agent_id });
    success(StatusCode::OK, &body, Some(status.allowance))
}

/// 200 of `GET /livez`.
pub(crate) fn alive() -> Answer {
    success(StatusCode::OK, &serde_json::json!({ "status": "ok" }), None)
}

/// 200 or 503 of `GET /readyz`. What works, but not as well as it should, is named in a field of its own, which is absent
/// otherwise. For balancers it is 200 also while store or chain fail, which all replicas share.
pub(crate) fn readiness(report: &Report, query: Option<&str>) -> Answer {
    let is_for_balancers = query == Some("for=balancer");
    let word = |health: &Health| match health {
        Ok(()) => "ok",
        Err(unhealthy) if unhealthy.is_behind => "behind",
        Err(_) => "error",
    };
    let (status, ready) = if report.is_ready() {
        (StatusCode::OK, "ready")
    } else if is_for_balancers && report.has_been_ready && !report.is_stopping {
        (StatusCode::OK, "partly")
    } else {
        let why = if report.is_stopping { "stopping" } else { "unavailable" };
        (StatusCode::SERVICE_UNAVAILABLE, why)
    };
    let mut checks = serde_json::json!({ "store": word(&report.store), "chain": word(&report.chain) });
    if let Some((checks, accepted_from)) = checks.as_object_mut().zip(report.signatures_accepted_from) {
        checks.insert("signatures".to_owned(), format!("refused until {}", rfc3339(accepted_from)).into());
    }
    let mut body = serde_json::json!({ "status": ready, "checks": checks });
    let (store, both) = (report.store.is_ok(), report.store.is_ok() && report.chain.is_ok());
    let degraded = vec![
        (report.lacks_logs, "chain_logs"),
        (report.lacks_details, "chain_details"),
        (report.replicas_missing > 0, "store_replicas"),
    ];
    let serves = [true, store, both].map(|goes_on| goes_on && is_for_balancers);
    let serves = serves.into_iter().zip(["public_routes", "limited_public_routes", "agents"]).collect();
    for (name, list) in [("degraded", degraded), ("serves", serves)] {
        let words: Vec<&str> = list.into_iter().filter_map(|(is_so, word)| is_so.then_some(word)).collect();
        if let Some(fields) = body.as_object_mut().filter(|_| !words.is_empty()) {
            fields.insert(name.to_owned(), serde_json::json!(words));
        }
    }
    let mut answer = success(status, &body, None);
    if status != StatusCode::OK {
        answer.headers_mut().insert(RETRY_AFTER, COME_BACK);
    }
    answer
}

/// The typed data of a request, without the message: of a verification, or of the own type of a change of a key. The types are
/// the same at every service.
pub(crate) fn typed_data(domain: &Eip712Domain, own_type: Option<KeyOperation>) -> Value {
    let name = own_type.map_or("Verification", KeyOperation::type_name);
    serde_json::json!({
        "domain": {
            "name": domain.name,
            "version": domain.version,
            "chainId": domain.chain_id,
            "verifyingContract": domain.verifying_contract.to_checksum(None),
        },
        "types": types_of(name, own_type.map(|_| "service"), &["agentId", "nonce", "timestamp"]),
        "primaryType": name,
    })
}

/// The types of the domain, and of a message with these fields: a text and numbers.
pub(super) fn types_of(primary_type: &str, text: Option<&str>, numbers: &[&str]) -> Value {
    let fields = text.map(|name| (name, "string")).into_iter();
    let fields = fields.chain(numbers.iter().map(|name| (*name, "uint256")));
    let field = |name: &str, kind: &str| serde_json::json!({ "name": name, "type": kind });
    serde_json::json!({
        "EIP712Domain": [
            field("name", "string"),
            field("version", "string"),
            field("chainId", "uint256"),
            field("verifyingContract", "address"),
        ],
        primary_type: fields.map(|(name, kind)| field(name, kind)).collect::<Vec<_>>(),
    })
}

/// A moment in the UTC of RFC 3339, whose years have four digits.
pub(crate) fn rfc3339(UnixSeconds(secs): UnixSeconds) -> String {
    const YEAR_10_000_SECS: u64 = 253_402_300_800;
    let since_epoch = Duration::from_secs(secs.min(YEAR_10_000_SECS - 1));
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since_epoch).to_string()
}

fn success(status: StatusCode, body: &impl Serialize, allowance: Option<Allowance>) -> Answer {
    let mut headers = HeaderMap::with_capacity(6);
    if let Some(allowance) = allowance {
        write_allowance(&mut headers, allowance);
    }
    json(status, headers, body)
}

/// An answer with a JSON body.
pub(crate) fn json(status: StatusCode, headers: HeaderMap, body: &impl Serialize) -> Answer {
    let mut text = Vec::with_capacity(USUAL_BODY_BYTES);
    // These bodies have string keys and finite numbers only, which always serialise.
    if serde_json::to_writer(&mut text, body).is_err() {
        text.clear();
    }
    json_text(status, headers, text)
}

/// An answer whose body is JSON already.
pub(crate) fn json_text(status: StatusCode, headers: HeaderMap, body: Vec<u8>) -> Answer {
    text(status, headers, JSON, body)
}

/// An answer with a body of this type.
pub(crate) fn text(status: StatusCode, mut headers: HeaderMap, kind: HeaderValue, body: Vec<u8>) -> Answer {
    headers.insert(http::header::CONTENT_TYPE, kind);
    headers.insert(http::header::CACHE_CONTROL, NO_STORE);
    headers.insert(http::header::CONTENT_LENGTH, number(body.len() as u64));
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}
