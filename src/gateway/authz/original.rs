//! The request that another gateway asks about, as it tells it.
//!
//! It goes through the reader of our own requests: what we would refuse from a client we refuse from a gateway. A part that is
//! missing or stands twice is refused too: the client may have written the other one.

use std::net::IpAddr;

use crate::domain::host;
use crate::error::Error;
use crate::gateway::rule::{Dialect, Incoming, Message};
use crate::http1::{Fields, RequestHead, SpanFields, Spans, TOO_MANY_FIELDS, head::head_from_parts};
use crate::message_signature::Content;
use crate::serve::{Request, unreadable};
use crate::wire::Asked;

/// The reason why a request can't be judged.
const UNTOLD: Error = Error::Malformed {
    problem: "the gateway in front does not tell its method, path, host and scheme, each once",
};

/// A request that was described whole.
pub(super) struct Original {
    /// The request line and host as HTTP/1, with all fields where the dialect tells them apart.
    text: Vec<u8>,
    spans: Spans,
    head: RequestHead,
    is_tls: bool,
    pub(super) peer: IpAddr,
}

impl Original {
    /// The original of a call over HTTP; `target` is the part of the call's own behind the name of the tenant.
    pub(super) fn from_call(dialect: Dialect, call: &Request<'_>, target: &str) -> Result<Self, Error> {
        let fields = &call.fields;
        let only = |name| optional(fields, name)?.ok_or(UNTOLD);
        let scheme = || Ok(optional(fields, "x-forwarded-proto")?.unwrap_or(b"http"));
        let whole;
        let parts = match dialect {
            Dialect::Forward => {
                ["x-forwarded-method", "x-forwarded-uri", "x-forwarded-host", "x-forwarded-proto"].map(only)
            }
            Dialect::Nginx => {
                let method = only("x-original-method");
                match (optional(fields, "x-original-uri")?, optional(fields, "x-original-url")?) {
                    (Some(target), None) => [method, Ok(target), only("host"), scheme()],
                    (None, Some(url)) => {
                        let [scheme, host, target] = parts_of(url).ok_or(UNTOLD)?;
                        [method, Ok(target), Ok(host), Ok(scheme)]
                    }
                    (Some(_), Some(_)) | (None, None) => return Err(UNTOLD),
                }
            }
            Dialect::Envoy | Dialect::Grpc => {
                whole = [target, call.query.map_or("", |_| "?"), call.query.unwrap_or_default()].concat();
                [Ok(call.method.as_bytes()), Ok(whole.as_bytes()), only("host"), scheme()]
            }
        };
        let [method, target, host, scheme] = parts;
        Self::read([method?, target?, host?, scheme?], std::iter::empty(), call.peer)
    }

    /// The original of a call over gRPC, which came from `peer`.
    pub(super) fn from_check(asked: &Asked<'_>, peer: IpAddr) -> Result<Self, Error> {
        let peer = asked.client.unwrap_or(peer);
        // Libraries of gRPC name no scheme.
        let http = asked.http;
        let scheme = if http.scheme.is_empty() { "http" } else { &http.scheme };
        let parts = [&*http.method, &http.path, &http.host, scheme].map(str::as_bytes);
        Self::read(parts, http.fields(), peer)
    }

    fn read<'a>(
        [method, target, host, scheme]: [&[u8]; 4],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        peer: IpAddr,
    ) -> Result<Self, Error> {
        let is_tls = match scheme {
            b"https" | b"wss" => true,
            b"http" | b"ws" => false,
            _ => return Err(UNTOLD),
        };
        let mut spans = Spans::default();
        let parts = head_from_parts([method, target, host], fields, &mut spans);
        let (text, head) = parts.map_err(|problem| match problem {
            TOO_MANY_FIELDS => Error::HeadTooLarge,
            problem => Error::Malformed { problem },
        })?;
        let is_host = std::str::from_utf8(host).is_ok_and(|host| host::of_authority(host).is_some());
        if !is_host || unreadable(&head, &text).is_some() {
            return Err(UNTOLD);
        }
        Ok(Self { text, spans, head, is_tls, peer })
    }

    /// The request's own fields, where the dialect tells them apart from those of the call.
    pub(super) fn fields(&self) -> SpanFields<'_> {
        SpanFields { head: &self.text, spans: &self.spans }
    }

    /// The request as `Gateway::admit` reads it.
    pub(super) fn incoming<'a, F>(
        &'a self,
        dialect: Dialect,
        tenant: &'a str,
        fields: &'a F,
    ) -> Incoming<'a, F> {
        Incoming {
            method: std::str::from_utf8(self.method()).unwrap_or_default(),
            target: self.target(),
            authority: Some(self.authority()),
            fields,
            peer: self.peer,
            is_tls: self.is_tls,
            content: Content::Unseen,
            dialect: Some(dialect),
            message: Message::Unread,
            tenant: Some(tenant),
        }
    }

    pub(super) fn method(&self) -> &[u8] {
        self.text.get(self.head.method.clone()).unwrap_or_default()
    }

    pub(super) fn target(&self) -> &[u8] {
        self.text.get(self.head.target.clone()).unwrap_or_default()
    }

    pub(super) fn authority(&self) -> &str {
        let host = self.spans.first().and_then(|host| self.text.get(host.value.clone()));
        std::str::from_utf8(host.unwrap_or_default()).unwrap_or_default()
    }
}

/// The value of a header that may be there once.
fn optional<'a>(fields: &'a impl Fields, name: &str) -> Result<Option<&'a [u8]>, Error> {
    let mut values = fields.all().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
    let first = values.next().map(|(_, value)| value);
    if values.next().is_some() { Err(UNTOLD) } else { Ok(first) }
}

/// Scheme, host, and path with query of a whole URL.
fn parts_of(url: &[u8]) -> Option<[&[u8]; 3]> {
    let colon = url.iter().position(|byte| *byte == b':')?;
    let (scheme, rest) = url.split_at(colon);
    let rest = rest.strip_prefix(b"://")?;
    let (host, target) = rest.split_at(rest.iter().position(|byte| *byte == b'/')?);
    Some([scheme, host, target])
}

#[cfg(test)]
mod tests;
