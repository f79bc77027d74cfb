//! A row of the error table, and how it becomes an answer.

use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;

use crate::wire::answers::{self, Answer};
use crate::wire::headers::COME_BACK;

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
    /// Those that the gateway adds.
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
