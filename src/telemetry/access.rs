//! The access log: a line for each request to API and gateway, and for each that the shell around them refuses.
//!
//! Text that a client chose is escaped, cut, and shows no whole key or signature.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::IpAddr;

use crate::domain::agent_id::AgentId;
use crate::domain::quota::Allowance;
use crate::domain::tier::Tier;
use crate::domain::trace::RemoteSpan;
use crate::telemetry::traces::Trace;

/// How much of a client's text a line shows, in bytes.
const SHOWN_BYTES_MAX: usize = 256;

/// Hex digits in a row that may be a key or a signature.
const HEX_RUN_MIN: usize = 64;

/// How much of such a run is shown.
const HEX_RUN_SHOWN: usize = 8;

/// True if the access log is on.
pub(crate) fn is_on() -> bool {
    tracing::enabled!(target: "access", tracing::Level::INFO)
}

/// The id of a request's trace: ours, or else its client's.
pub(crate) fn trace_id<'a>(ours: Option<&Trace>, clients: Option<RemoteSpan<'a>>) -> Option<Cow<'a, str>> {
    let ours = ours.map(|trace| Cow::Owned(trace.id()));
    ours.or_else(|| clients.map(|span| Cow::Borrowed(span.trace)))
}

/// A request, for its line. A field that is not known is absent.
#[derive(Default)]
pub(crate) struct Line<'a> {
    pub(crate) listener: &'a str,
    pub(crate) request_id: Option<&'a str>,
    pub(crate) trace_id: Option<&'a str>,
    /// The address that it is from, as far as proxies are trusted to say.
    pub(crate) client: Option<IpAddr>,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) host: Option<Shown<'a>>,
    /// The route or endpoint that it falls under.
    pub(crate) route: Option<&'a str>,
    pub(crate) credential: Option<&'a str>,
    pub(crate) agent: Option<AgentId>,
    pub(crate) tier: Option<Tier>,
    /// The domain that a bot has proven.
    pub(crate) domain: Option<&'a str>,
    pub(crate) min_tier: Option<u8>,
    /// The limit, and what is left of it.
    pub(crate) allowance: Option<Allowance>,
    pub(crate) decision: Option<&'static str>,
    pub(crate) method: Option<Shown<'a>>,
    /// The version of HTTP.
    pub(crate) protocol: Option<&'static str>,
    /// Its path, without the query.
    pub(crate) path: Option<Shown<'a>>,
    /// The status of the answer; 0: there was none.
    pub(crate) status: u16,
    /// The `errorType` of an answer of ours.
    pub(crate) error_type: Option<&'static str>,
    /// The reason why a connection was closed before there was a request.
    pub(crate) reason: Option<&'static str>,
    /// How much of the request's body was taken, in bytes.
    pub(crate) received: u64,
    /// How much of the answer's body was sent, in bytes.
    pub(crate) sent: u64,
    /// The time from the request's head to the end, in microseconds.
    pub(crate) micros: Option<u64>,
    /// The part of it before the request turned to its upstream.
    pub(crate) own_micros: Option<u64>,
    /// The time to the first byte of the upstream's answer.
    pub(crate) upstream_micros: Option<u64>,
    /// The upstream that it was at last.
    pub(crate) upstream: Option<&'a dyn fmt::Display>,
}

impl Line<'_> {
    /// Writes it, if the access log is on.
    pub(crate) fn write(&self) {
        tracing::info!(
            target: "access",
            request_id = self.request_id,
            trace_id = self.trace_id,
            listener = self.listener,
            client = self.client.map(tracing::field::display),
            tenant = self.tenant,
            host = self.host.map(tracing::field::display),
            route = self.route,
            credential = self.credential,
            agent = self.agent.map(tracing::field::display),
            tier = self.tier.map(Tier::number),
            min_tier = self.min_tier,
            domain = self.domain,
            limit = self.allowance.map(|allowance| allowance.limit),
            remaining = self.allowance.map(|allowance| allowance.remaining),
            decision = self.decision,
            method = self.method.map(tracing::field::display),
            protocol = self.protocol,
            path = self.path.map(tracing::field::display),
            status = self.status,
            error_type = self.error_type,
            reason = self.reason,
            received = self.received,
            sent = self.sent,
            micros = self.micros,
            own_micros = self.own_micros,
            upstream_micros = self.upstream_micros,
            upstream = self.upstream.map(tracing::field::display),
        );
    }
}

/// Bytes that a client chose: blanks, control characters and what is no ASCII are escaped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cut = self.0.len() > SHOWN_BYTES_MAX;
        let bytes = self.0.get(..SHOWN_BYTES_MAX).unwrap_or(self.0);
        for run in bytes.chunk_by(|one, next| one.is_ascii_hexdigit() == next.is_ascii_hexdigit()) {
            // A run that is cut may go on.
            let may_be_secret = run.len() >= HEX_RUN_MIN || (is_cut && bytes.ends_with(run));
            let is_secret = run.first().is_some_and(u8::is_ascii_hexdigit) && may_be_secret;
            let shown = if is_secret { run.get(..HEX_RUN_SHOWN).unwrap_or(run) } else { run };
            for &byte in shown {
                match byte {
                    b' ' => out.write_str("\\x20")?,
                    _ => write!(out, "{}", byte.escape_ascii())?,
                }
            }
            if is_secret {
                out.write_str("...")?;
            }
        }
        if is_cut { out.write_char('~') } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};
    use tracing::dispatcher::with_default;

    use super::{Line, SHOWN_BYTES_MAX, Shown};
    use crate::telemetry::fixture::LogCapture;

    // threat: Keys in paths, and forged lines, in the log
    #[test]
    fn keys_and_signatures_in_a_path_are_cut() {
        let (key, signature) = ("0123456789abcdef".repeat(4), "AB".repeat(65));
        for (path, shown) in [
            ("/v1/users/0xdeadbeef".to_owned(), "/v1/users/0xdeadbeef".to_owned()),
            (format!("/svc_live_v1_{key}/x"), "/svc_live_v1_01234567.../x".to_owned()),
            (format!("/0x{signature}"), "/0xABABABAB...".to_owned()),
            (format!("/{}", &key[1..]), format!("/{}", &key[1..])),
        ] {
            assert_eq!(Shown(path.as_bytes()).to_string(), shown);
        }
        let cut = format!("{}{key}", "/".repeat(SHOWN_BYTES_MAX - 40));
        assert!(Shown(cut.as_bytes()).to_string().ends_with("/01234567...~"));
    }

    proptest! {
        // threat: Keys in paths, and forged lines, in the log
        #[test]
        fn no_text_of_a_client_forges_a_line_or_a_field(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let captured = LogCapture::default();
            let text = Some(Shown(&bytes));
            let line = Line { listener: "api", host: text, method: text, path: text, ..Line::default() };
            with_default(&captured.dispatch(), || line.write());
            let lines = captured.take();
            prop_assert!(lines.len() == 1 && lines[0].is_ascii() && lines[0].len() < 8 * SHOWN_BYTES_MAX + 1_000);
            prop_assert!(!lines[0].bytes().any(|byte| byte.is_ascii_control()));
            let names: Vec<&str> = lines[0].split(' ').filter_map(|field| Some(field.split_once('=')?.0)).collect();
            prop_assert!(names == ["listener", "host", "method", "path", "status", "received", "sent"], "{}", lines[0]);
        }
    }
}
