//! The record of a request: made when its head was read, filled by its steps, and written once at its end to metrics, trace and
//! access log, in the same way by each listener.
//!
//! Nothing that a client wrote reaches the log unescaped, and no query does.

use std::sync::{Arc, OnceLock};
use std::{fmt::Display, net::IpAddr, time::Duration};

use ipnet::IpNet;
use prometheus::IntCounter;
use tokio::time::Instant;

use crate::domain::{About, AgentId, Allowance, Denial, KeyName, Tier};
use crate::error::Error;
use crate::http1::{Fields, name::Name};
use crate::pipeline::{Signatory, permit::Permit};
use crate::ports::{Clock, micros};
use crate::telemetry::{FaultLog, Metrics, RouteSeries, Shown, Trace, Tracer};
use crate::wire::client_ip::address_of;
use crate::wire::trace::{remote_span, state_of};

/// The tiers as labels, by their numbers.
const TIERS: [&str; 5] = ["0", "1", "2", "3", "4"];

/// One request. A field that is not known is absent from its line.
pub(crate) struct RequestRecord {
    /// The id in logs, here and at the upstream.
    pub(crate) request_id: Option<String>,
    /// The trace of a request that is sampled.
    pub(crate) trace: Option<Box<Trace>>,
    /// The kind of credential that was read.
    pub(crate) credential: Option<&'static str>,
    /// The agent that was admitted, that a signed request names, or that a refusal is about.
    pub(crate) agent: Option<AgentId>,
    pub(crate) tier: Option<Tier>,
    /// The lowest tier that passes, where agents do.
    pub(crate) min_tier: Option<u8>,
    /// The limit, and what is left of it.
    pub(crate) allowance: Option<Allowance>,
    /// `None`: there was none to be made, as for preflights.
    pub(crate) decision: Option<&'static str>,
    /// The owner and the signer of a request about a key, once they are known.
    pub(crate) by: OnceLock<Signatory>,
    /// The name of the key that it is about.
    pub(crate) key: Option<KeyName>,
    /// The `errorType` of an answer of ours.
    pub(crate) error_type: Option<&'static str>,
    /// The reason why we closed a WebSocket.
    pub(crate) reason: Option<&'static str>,
    /// How much of the request's body has come, in bytes.
    pub(crate) received: u64,
    pub(crate) times: Times,
}

/// The moments of a request that tell its time here from its upstream's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// The head was read.
    pub(crate) begun: Instant,
    /// An upstream was turned to: a connection was begun, or its head was sent over one that was there.
    pub(crate) left: Option<Instant>,
    /// The last part of it was sent, before any of the answer came.
    pub(crate) asked: Option<Instant>,
    /// The first byte of the final answer came.
    pub(crate) answered: Option<Instant>,
}

/// A request that is over, beside its record.
pub(crate) struct Ended<'a, F> {
    pub(crate) method: &'a [u8],
    /// Path and query.
    pub(crate) target: &'a [u8],
    /// The version of HTTP.
    pub(crate) protocol: &'static str,
    /// The host that it is for, where no header says that.
    pub(crate) authority: &'a str,
    pub(crate) fields: &'a F,
    /// The address that it came from.
    pub(crate) peer: Option<IpAddr>,
    /// The status of its answer; 0: there was none.
    pub(crate) status: u16,
    /// How much of the answer's body was sent, in bytes.
    pub(crate) sent: u64,
    pub(crate) ending: Ending,
    /// The moment of its end.
    pub(crate) at: Instant,
}

/// How a request ended that was not answered by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The answer was sent whole.
    Whole,
    /// The client left, or broke its own request.
    ClientLeft,
    /// The answer broke off.
    Failed,
}

/// Where a request belongs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Destination<'a> {
    pub(crate) tenant: Option<&'a str>,
    /// The route as configured, or the endpoint.
    pub(crate) route: Option<&'a str>,
    /// The domain that a bot has proven.
    pub(crate) domain: Option<&'a str>,
    /// The upstream that it was at last.
    pub(crate) upstream: Option<&'a dyn Display>,
}

/// Writes the records of one listener.
pub(crate) struct Recorder {
    /// The listener's name in the log.
    listener: &'static str,
    /// The name in metrics.
    counted_as: &'static str,
    /// Networks of proxies that are believed to name the client.
    proxies: Vec<IpNet>,
    /// Begins traces; `None`: no request is traced.
    tracer: Option<Arc<Tracer>>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    admitted: [IntCounter; TIERS.len()],
    chain_faults: FaultLog,
    store_faults: FaultLog,
    entropy_faults: FaultLog,
    audit_faults: FaultLog,
}

impl RequestRecord {
    /// A request whose head was read at this moment.
    pub(crate) const fn new(begun: Instant) -> Self {
        Self {
            request_id: None,
            trace: None,
            credential: None,
            agent: None,
            tier: None,
            min_tier: None,
            allowance: None,
            decision: None,
            by: OnceLock::new(),
            key: None,
            error_type: None,
            reason: None,
            received: 0,
            times: Times { begun, left: None, asked: None, answered: None },
        }
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// A step is over.
    pub(crate) fn step(&mut self, name: &'static str, clock: &Arc<dyn Clock>) {
        if let Some(trace) = &mut self.trace {
            trace.step(name, clock.monotonic_micros());
        }
    }

    pub(crate) fn admitted(&mut self, permit: &Permit) {
        self.agent = Some(permit.agent());
        self.tier = Some(permit.tier());
        self.allowance = Some(permit.allowance());
        self.decision = Some("admitted");
    }

    /// The id of the request's trace: ours, or else its client's.
    pub(crate) fn trace_id(&self, fields: &impl Fields) -> Option<String> {
        let ours = self.trace.as_deref().map(Trace::id);
        ours.or_else(|| remote_span(fields).map(|span| span.trace.to_owned()))
    }
}

impl Times {
    /// A part of the request was sent.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.left.get_or_insert(now);
        // The answer may have come by the time that the sending is noted.
        if self.answered.is_none() || self.asked.is_none() {
            self.asked = Some(now);
        }
    }

    /// The time before it turned to its upstream. `None`: it did not.
    pub(crate) fn own(&self) -> Option<Duration> {
        Some(self.left?.saturating_duration_since(self.begun))
    }

    /// The time to the first byte of the upstream's answer, from the last part of the request that was sent before.
    pub(crate) fn upstreams(&self) -> Option<Duration> {
        Some(self.answered?.saturating_duration_since(self.asked?))
    }
}

impl<F> Ended<'_, F> {
    /// The path, without the query.
    fn path(&self) -> &[u8] {
        self.target.split(|byte| *byte == b'?').next().unwrap_or_default()
    }
}

impl Recorder {
    /// For the listener of these names in the log and in metrics.
    pub(crate) fn new(
        (listener, counted_as): (&'static str, &'static str),
        proxies: Vec<IpNet>,
        tracer: Option<Arc<Tracer>>,
        metrics: &Metrics,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let admitted = TIERS.map(|tier| metrics.limiter_decisions.with_label_values(&[tier, "admitted"]));
        Self {
            listener,
            counted_as,
            proxies,
            tracer,
            admitted,
            chain_faults: FaultLog::new("chain", Arc::clone(clock)),
            store_faults: FaultLog::new("store", Arc::clone(clock)),
            entropy_faults: FaultLog::new("entropy", Arc::clone(clock)),
            audit_faults: FaultLog::new("audit", Arc::clone(clock)),
            metrics: metrics.clone(),
            clock: Arc::clone(clock),
        }
    }

    /// Begins the trace of a request, if it is recorded. Without a tracer no clock is read and no header looked at.
    pub(crate) fn begin_trace(&self, fields: &impl Fields, record: &mut RequestRecord, now: Instant) {
        let Some(tracer) = &self.tracer else { return };
        let begun = self.clock.monotonic_micros().saturating_sub(micros(now - record.times.begun));
        record.trace = tracer.begin(remote_span(fields), || state_of(fields), begun);
    }

    /// The tier gate or the limiter has decided about a verification.
    pub(crate) fn decided(&self, outcome: Result<&Permit, &Error>) {
        let (tier, decision) = match outcome {
            Ok(permit) => {
                if let Some(counter) = self.admitted.get(usize::from(permit.tier().number())) {
                    counter.inc();
                }
                return;
            }
            Err(Error::Denied(Denial::RateLimited { tier: Some(tier), .. })) => (*tier, "limited"),
            Err(Error::Denied(Denial::TierBlocked { current, .. })) => (*current, "blocked"),
            Err(_) => return,
        };
        let tier = TIERS.get(usize::from(tier.number())).copied().unwrap_or_default();
        self.metrics.limiter_decisions.with_label_values(&[tier, decision]).inc();
    }

    /// A request is answered with an error.
    pub(crate) fn refused(
        &self,
        error: &Error,
        error_type: &'static str,
        record: &mut RequestRecord,
        destination: &Destination<'_>,
    ) {
        self.metrics.denials.with_label_values(&[self.counted_as, error_type]).inc();
        let mut about = About::default();
        match error {
            Error::Denied(denial) => about = denial.about(),
            Error::TooManyInFlight { agent, tier, .. } => {
                about = About { agent: Some(*agent), tier: Some(*tier), limit: None };
            }
            Error::Chain(fault) | Error::Unverified(fault) => self.chain_faults.note(fault),
            Error::Store(fault) => self.store_faults.note(fault),
            Error::Entropy(fault) => self.entropy_faults.note(fault),
            Error::Unrecorded(why) => self
                .audit_faults
                .note(format_args!("no line of the audit log can be written, so no key is changed: {why}")),
            Error::Invalid { .. }
            | Error::Internal
            | Error::NotFound
            | Error::MethodNotAllowed { .. }
            | Error::Malformed { .. }
            | Error::McpMessage { .. }
            | Error::TooSlow
            | Error::HeadTooLarge
            | Error::NoLogin
            | Error::UnknownHost
            | Error::Forbidden
            | Error::OtherSite
            | Error::Unproven { .. }
            | Error::UploadTooLarge { .. }
            | Error::Upstream
            | Error::UpstreamTimeout
            | Error::Loop
            | Error::Overloaded => {}
        }
        record.error_type = Some(error_type);
        if record.decision.is_some() {
            return; // It was let through, and has failed.
        }
        let About { agent, tier, limit } = about;
        record.decision = Some("refused");
        record.agent = record.agent.or(agent);
        record.tier = record.tier.or(tier);
        record.allowance = record.allowance.or(limit.map(|limit| Allowance { limit, remaining: 0 }));
        tracing::debug!(
            request_id = record.id(),
            tenant = destination.tenant,
            route = destination.route,
            credential = record.credential,
            agent = record.agent.map(tracing::field::display),
            tier = record.tier.map(Tier::number),
            min_tier = record.min_tier,
            error_type,
            "refused",
        );
    }

    /// The request is over: counts it for its route, ends its trace, and writes its line in the access log, if that is on.
    pub(crate) fn end<F: Fields>(
        &self,
        record: &RequestRecord,
        ended: &Ended<'_, F>,
        destination: &Destination<'_>,
        requests: &RouteSeries,
    ) {
        let taken = ended.at.saturating_duration_since(record.times.begun);
        requests.observe(ended.method, ended.status, taken.as_secs_f64());
        self.end_trace(record, ended, destination);
        if !tracing::enabled!(target: "access", tracing::Level::INFO) {
            return;
        }
        let trace = record.trace_id(ended.fields);
        let host = Some(ended.authority.as_bytes()).filter(|authority| !authority.is_empty());
        let host = host.or_else(|| ended.fields.values(Name::Host).next());
        // No name of a user.
        let host = host.and_then(|host| host.rsplit(|byte| *byte == b'@').next()).map(Shown);
        let client = ended.peer.map(|peer| address_of(peer, ended.fields, &self.proxies));
        tracing::info!(
            target: "access",
            request_id = record.id(),
            trace_id = trace,
            listener = self.listener,
            client = client.map(tracing::field::display),
            tenant = destination.tenant,
            host = host.map(tracing::field::display),
            route = destination.route,
            credential = record.credential,
            agent = record.agent.map(tracing::field::display),
            tier = record.tier.map(Tier::number),
            min_tier = record.min_tier,
            domain = destination.domain,
            limit = record.allowance.map(|allowance| allowance.limit),
            remaining = record.allowance.map(|allowance| allowance.remaining),
            decision = record.decision,
            method = tracing::field::display(Shown(ended.method)),
            protocol = ended.protocol,
            path = tracing::field::display(Shown(ended.path())),
            status = ended.status,
            error_type = record.error_type,
            reason = record.reason,
            received = record.received,
            sent = ended.sent,
            micros = micros(taken),
            own_micros = micros(record.times.own().unwrap_or(taken)),
            upstream_micros = record.times.upstreams().map(micros),
            upstream = destination.upstream.map(tracing::field::display),
        );
    }

    /// The end of a request's trace. The names of attributes are OpenTelemetry's, where it has one; no query is shown.
    fn end_trace<F>(&self, record: &RequestRecord, ended: &Ended<'_, F>, destination: &Destination<'_>) {
        let Some(trace) = &record.trace else { return };
        let text = |text: &str| text.to_owned().into();
        let attributes = [
            ("url.path", Some(Shown(ended.path()).to_string().into())),
            ("tiergate.request_id", record.id().map(text)),
            ("tiergate.tenant", destination.tenant.map(text)),
            ("tiergate.decision", record.decision.map(text)),
            ("tiergate.agent", record.agent.map(|agent| agent.to_string().into())),
            ("tiergate.tier", record.tier.map(|tier| i64::from(tier.number()).into())),
        ];
        let is_broken = ended.ending == Ending::Failed;
        let outcome = (ended.status, record.error_type, is_broken);
        trace.end((ended.method, destination.route), outcome, attributes, self.clock.monotonic_micros());
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc, time::Duration};

    use http::HeaderMap;
    use proptest::prelude::{any, prop_assert, proptest};
    use tokio::time::Instant;
    use tracing::dispatcher::with_default;

    use super::{Destination, Ended, Ending, Recorder, RequestRecord};
    use crate::ports::{Clock, simulated::SimulatedClock};
    use crate::serve::Timer;
    use crate::telemetry::{Metrics, RouteSeries, SHOWN_BYTES_MAX, fixture::LogCapture};

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn the_time_here_ends_before_connecting_and_the_upstreams_begins_after_the_upload() {
        let begun = Timer::now();
        let at = |millis: u32| begun + MILLI * millis;
        let mut times = RequestRecord::new(begun).times;
        assert_eq!((times.own(), times.upstreams()), (None, None));
        // 2 ms here, a connection, the head and the body, which its client takes 40 ms for.
        times.left = Some(at(2));
        times.sent(at(10));
        times.sent(at(50));
        assert_eq!((times.own(), times.upstreams()), (Some(MILLI * 2), None), "there is no answer yet");
        times.answered = Some(at(80));
        times.sent(at(900));
        assert_eq!(times.own(), Some(MILLI * 2));
        assert_eq!(times.upstreams(), Some(MILLI * 30));
    }

    proptest! {
        // threat: Keys in paths, and forged lines, in the log
        #[test]
        fn no_text_of_a_client_forges_a_line_or_a_field(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let captured = LogCapture::default();
            let (metrics, begun): (_, Instant) = (Metrics::new().unwrap(), Timer::now());
            let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(0));
            let recorder = Recorder::new(("api", "api"), Vec::new(), None, &metrics, &clock);
            let series = RouteSeries::new(&metrics, &"".into(), "", None);
            let mut fields = HeaderMap::new();
            if let Ok(host) = http::HeaderValue::from_bytes(&bytes) {
                fields.insert("host", host);
            }
            let ended = Ended {
                method: &bytes, target: &bytes, protocol: "HTTP/1.1", authority: "", fields: &fields,
                peer: None::<IpAddr>, status: 0, sent: 0, ending: Ending::Whole, at: begun,
            };
            with_default(&captured.dispatch(), || {
                recorder.end(&RequestRecord::new(begun), &ended, &Destination::default(), &series);
            });
            let lines = captured.take();
            prop_assert!(lines.len() == 1 && lines[0].is_ascii() && lines[0].len() < 8 * SHOWN_BYTES_MAX + 1_000);
            prop_assert!(!lines[0].bytes().any(|byte| byte.is_ascii_control()));
            let names = lines[0].split(' ').filter_map(|field| Some(field.split_once('=')?.0));
            let names: Vec<&str> = names.filter(|name| *name != "host").collect();
            let known = ["listener", "method", "protocol", "path", "status", "received", "sent", "micros", "own_micros"];
            prop_assert!(names == known, "{}", lines[0]);
        }
    }
}
