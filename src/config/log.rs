//! `[log]`: what is logged, how, and where key operations are recorded. `[traces]`: where traces of requests go.

use std::{num::NonZeroU32, path::PathBuf};

use crate::config::reader::Reader;
use crate::config::written::{Shown, file, open_url, valid};
use crate::domain::{LogRules, RpcUrl};

/// The words for levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

settings! {
    /// The settings of the log.
    LogSettings(reader) {
        /// "text" for people, or "json": an object for each line.
        is_json: bool = reader.word("log.format", "text", &[("text", false), ("json", true)]),
        /// The audit log of key operations: "stdout", or a file, which is opened again after SIGHUP. Empty: there is none.
        audit: Option<AuditPlace> = reader.text("log.audit", "", |text| match text {
            "" => Ok(None),
            "stdout" => Ok(Some(AuditPlace::Stdout)),
            path => file(path).map(|path| Some(AuditPlace::File(path))),
        }),
        /// true: a key operation that the agent's owner has signed needs a line there before it is done: without one it is refused (500).
        audit_required: bool = reader.boolean("log.audit_required", false),
    } then {
        if audit_required == Some(true) && audit == Some(None) {
            reader.report(&["log.audit_required", "log.audit"], "is true, and log.audit names no place");
        }
    }
}

/// The place of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditPlace {
    /// Standard output.
    Stdout,
    /// A file; a relative path is relative to the working directory of the process.
    File(PathBuf),
}

/// Reads the lines that are logged.
pub(super) fn rules(reader: &mut Reader) -> Option<LogRules> {
    read_all!(reader: LogRules {
        /// off, error, warn, info, debug or trace; or levels by target: "info,tiergate=debug". This and access are read again
        /// while the service runs.
        level: reader.text("log.level", "info", level),
        /// A line for each request to api and gateway, with the client's address.
        access: reader.boolean("log.access", false),
    })
}

/// A word alone would be taken for a target, and everything of it logged: a misspelled level is a mistake.
fn level(text: &str) -> Result<String, String> {
    let is_target = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte))
    };
    let is_directive = |part: &str| {
        let (target, level) = part.split_once('=').unwrap_or(("any", part));
        is_target(target) && LEVELS.contains(&level)
    };
    let is_level = text.split(',').all(is_directive);
    let wanted = format!("{}, or levels by target: \"info,tiergate=debug\"", LEVELS.join(", "));
    valid(text, is_level.then(|| text.to_owned()), wanted)
}

settings! {
    /// The collector of traces, and the share of requests that are traced.
    TraceSettings(reader) {
        /// Where spans of requests are sent, by OTLP over HTTP; without it none are made, and a client's traceparent passes
        /// untouched. Logins go into OTEL_EXPORTER_OTLP_HEADERS, and other variables of OpenTelemetry's exporter and batches work.
        /// A URL without a path means /v1/traces.
        /// Example: "http://127.0.0.1:4318/v1/traces"
        endpoint: Option<RpcUrl> = {
            reader.mask(Shown::Host, &["traces.endpoint"]);
            Some(reader.text("traces.endpoint", None, endpoint))
        },
        /// Of requests that come without a trace one in so many is traced, up to 1000000; 1: each, 0: none.
        one_in: u32 = reader.integer("traces.one_in", 100, &(0..=1_000_000)),
        /// Requests that come with a trace are traced if their client says so, but at most so many a second in this process, 1 to
        /// 1000000: any client may say so.
        continued_per_second: NonZeroU32 =
            reader.integer("traces.continued_per_second", 100, &(1..=1_000_000)).and_then(NonZeroU32::new),
    }
}

fn endpoint(text: &str) -> Result<RpcUrl, String> {
    let url = open_url(text, "which OTEL_EXPORTER_OTLP_HEADERS takes")?;
    // The address alone, as OTEL_EXPORTER_OTLP_ENDPOINT takes it. Collectors answer 404 to `/`.
    let is_base = url.reveal().path() == "/" && url.reveal().query().is_none();
    let whole = is_base.then(|| RpcUrl::parse(&format!("{}/v1/traces", url.origin())));
    Ok(whole.flatten().unwrap_or(url))
}
