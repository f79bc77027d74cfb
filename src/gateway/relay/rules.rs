//! The heads that the relay writes: the client's for the upstream, the upstream's for the client.

use std::ops::Range;

use pingora::protocols::http::date::get_cached_date;

use crate::domain::HostHeader;
use crate::gateway::policy::answers::{self, is_about_limits};
use crate::gateway::policy::requests::{Kept, is_of_one_hop};
use crate::gateway::rule::{Incoming, Message};
use crate::gateway::{
    Gateway, context::Context, failure::Failure, policy::cors, policy::forwarded::Arrival,
    relay::exchange::AnswerRules,
};
use crate::http1::{Body, Fields, Lines, Options, RequestHead, SpanFields, name::Name};
use crate::mcp::Filter;
use crate::message_signature::Content;
use crate::serve::connection::Connection;

impl Gateway {
    /// Writes the head of the request for its upstream.
    pub(super) fn write_request(
        &self,
        connection: &Connection,
        head: &RequestHead,
        ctx: &Context,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let fields = connection.fields();
        let text = |range: &Range<usize>| fields.head.get(range.clone()).unwrap_or_default();
        let site = ctx.site.as_ref().ok_or(Failure::Internal)?;
        let host = ctx.member().filter(|_| site.tenant.proxy.host_header == HostHeader::Upstream);
        out.extend_from_slice(text(&head.method));
        out.push(b' ');
        out.extend_from_slice(text(&head.target));
        out.extend_from_slice(b" HTTP/1.1\r\n");
        let options = Options::of(&fields).map_err(|_| Failure::Malformed)?;
        let believed = self.rules.believed.of(connection.peer.ip());
        let kept = Kept::of(&fields, self.pipeline.key_format(), believed);
        for span in &**fields.spans {
            let name = text(&span.name);
            let is_own_host = span.id == Name::Host && host.is_some();
            // HTTP/1.0 has no interim answers (RFC 9110, section 10.1.1).
            let is_unknown = head.is_http_1_0 && span.id == Name::Expect;
            if is_own_host
                || is_unknown
                || is_of_one_hop(&options, span.id, name)
                || !kept.has(span.id, name)
                || ctx.replaces(span.id, name)
            {
                continue;
            }
            copy_line(&fields, span.name.start..span.value.end, out);
        }
        if let Some(member) = host {
            out.set("Host", member.host.as_bytes());
        }
        if head.body == Body::Chunked {
            out.set("Transfer-Encoding", b"chunked");
        }
        let arrival = Arrival {
            peer: &connection.peer_text,
            believed,
            is_tls: connection.stream.is_tls(),
            version: if head.is_http_1_0 { "1.0" } else { "1.1" },
        };
        let authority = fields.values(Name::Host).next().unwrap_or_default();
        self.write_ours(&fields, authority, ctx, &arrival, out);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

impl AnswerRules for Context {
    fn list_filter(&self, status: u16, fields: &SpanFields<'_>) -> Result<Option<Box<Filter>>, Failure> {
        if self.mcp.is_none() { Ok(None) } else { Self::list_filter(self, status, fields) }
    }

    fn write_kept(
        &self,
        status: u16,
        keeps_length: bool,
        fields: &SpanFields<'_>,
        options: &Options<'_>,
        out: &mut Vec<u8>,
    ) {
        for span in &**fields.spans {
            let name = fields.head.get(span.name.clone()).unwrap_or_default();
            let is_framing = matches!(span.id, Name::Connection | Name::TransferEncoding);
            // Neither has a body, whatever it says of its length (RFC 9110, section 8.6).
            let is_no_length =
                span.id == Name::ContentLength && (!keeps_length || status < 200 || status == 204);
            let is_replaced = span.id == Name::RequestId && status >= 200;
            let is_about_pages = self.cors().is_some() && cors::is_ours(name);
            let ends_here =
                is_framing || is_no_length || is_replaced || is_about_pages || is_about_limits(name);
            if !ends_here && !answers::is_of_one_hop(options, span.id, name) {
                copy_line(fields, span.name.start..span.value.end, out);
            }
        }
    }

    fn write_ours(&self, fields: &SpanFields<'_>, out: &mut Vec<u8>) {
        if !fields.has(Name::Date) {
            out.set("Date", get_cached_date().as_bytes());
        }
        self.write_forwarded_answer_headers(fields, out);
    }
}

/// A request as `Gateway::admit` reads it.
pub(in crate::gateway) fn incoming<'a>(
    connection: &'a Connection,
    head: &RequestHead,
    fields: &'a SpanFields<'a>,
) -> Option<Incoming<'a, SpanFields<'a>>> {
    let authority = fields.values(Name::Host).next();
    Some(Incoming {
        method: std::str::from_utf8(fields.head.get(head.method.clone())?).ok()?,
        target: fields.head.get(head.target.clone())?,
        authority: authority.map(|host| std::str::from_utf8(host).unwrap_or_default()),
        fields,
        peer: connection.peer.ip(),
        is_tls: connection.stream.is_tls(),
        content: if head.body == Body::Length(0) { Content::Empty } else { Content::Follows },
        dialect: None,
        message: Message::Unread,
        tenant: None,
    })
}

/// Copies a header line as it was written, without the blanks behind its value.
fn copy_line(fields: &SpanFields<'_>, line: Range<usize>, out: &mut Vec<u8>) {
    out.extend_from_slice(fields.head.get(line).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}
