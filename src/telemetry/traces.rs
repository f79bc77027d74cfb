//! Traces of requests: spans in the terms of OpenTelemetry, sent to a collector by OTLP.
//!
//! Spans wait in a bounded queue, and a thread of the library sends them: no request waits for the collector, and what there
//! is no room for is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, num::NonZeroU32, sync::Arc};

use async_trait::async_trait;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
pub(crate) use opentelemetry::Value as Attribute;
use opentelemetry::trace::{
    SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, Tracer as _,
    TracerProvider,
};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use prometheus::IntCounterVec;
use reqwest::blocking::Client;
use reqwest::redirect::Policy;

use crate::domain::{RemoteSpan, RpcUrl};
use crate::ports::Clock;
use crate::telemetry::{faults::FaultLog, http::known_method, metrics::Metrics};

/// How long the collector may take for one batch.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(10);

/// How long the end of the process waits for spans that were not sent.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Tracer {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    one_in: u64,
    /// Requests so far that came without a trace.
    alone: AtomicU64,
    continued: DefaultDirectRateLimiter,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
pub(crate) struct Trace {
    tracer: SdkTracer,
    /// Our span of the whole request.
    request: Context,
    /// The span of the upstream that it is at.
    upstream: Option<Context>,
    /// The wall clock at monotonic time 0.
    origin: SystemTime,
    /// The begin of the next step, in monotonic microseconds.
    step_from: u64,
}

/// Sends batches to the collector, and counts the tries.
struct Collector {
    http: Client,
    exports: IntCounterVec,
    faults: FaultLog,
}

impl fmt::Debug for Collector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Collector")
    }
}

#[async_trait]
impl HttpClient for Collector {
    /// Called on a thread of the library, which may block, and again for a batch that may be tried again.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.http.send_bytes(request).await;
        let problem = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("status {}", answer.status().as_u16())),
            // Without the URL, which may hold a key.
            Err(error) => Some(match error.downcast_ref::<reqwest::Error>() {
                Some(error) if error.is_timeout() => "no answer in time".to_owned(),
                Some(error) if error.is_connect() => "no connection".to_owned(),
                Some(_) | None => "the exchange failed".to_owned(),
            }),
        };
        self.exports.with_label_values(&[if problem.is_none() { "taken" } else { "failed" }]).inc();
        if let Some(problem) = problem {
            self.faults.note(format_args!("the collector of traces did not take a batch: {problem}"));
        }
        answer
    }
}

impl Tracer {
    /// A tracer to the collector at a URL. Of requests without a trace it traces one in `one_in`; 0: none. Of those with one it
    /// traces so many a second.
    /// Error: when no HTTP client can be made, or a variable `OTEL_…` of the environment is wrong.
    pub(crate) fn new(
        endpoint: &RpcUrl,
        one_in: u32,
        continued_per_second: NonZeroU32,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let http = Client::builder().redirect(Policy::none()).no_proxy().timeout(EXPORT_TIME_MAX).build()?;
        let faults = FaultLog::new("traces", Arc::clone(clock));
        let collector = Collector { http, exports: metrics.trace_exports.clone(), faults };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(endpoint.reveal().as_str())
            .with_timeout(EXPORT_TIME_MAX)
            .with_http_client(collector)
            .build()?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(resource())
            .build();
        let tracer = provider.tracer("tiergate");
        let continued = RateLimiter::direct(Quota::per_second(continued_per_second));
        let (one_in, alone) = (one_in.into(), AtomicU64::new(0));
        Ok(Self { provider, tracer, one_in, alone, continued, clock: Arc::clone(clock) })
    }

    /// The trace of a request whose head had been read at `begun`, in monotonic microseconds. `of`: the span that it belongs
    /// to. `state`: what other systems keep of the trace. `None`: it is not recorded.
    pub(crate) fn begin(
        &self,
        of: Option<RemoteSpan<'_>>,
        state: impl FnOnce() -> String,
        begun: u64,
    ) -> Option<Box<Trace>> {
        let parent = match of {
            Some(of) if of.is_sampled && self.continued.check().is_ok() => {
                let (trace, span) = (TraceId::from_hex(of.trace).ok()?, SpanId::from_hex(of.span).ok()?);
                let state = state().parse().unwrap_or_default();
                let parent = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, state);
                Context::new().with_remote_span_context(parent)
            }
            None if self.one_in > 0
                && self.alone.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in) =>
            {
                Context::new()
            }
            Some(_) | None => return None,
        };
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.unix_millis());
        let origin = now - Duration::from_micros(self.clock.monotonic_micros());
        let builder = SpanBuilder::from_name("request")
            .with_kind(SpanKind::Server)
            .with_start_time(origin + Duration::from_micros(begun));
        let request = Context::new().with_span(self.tracer.build_with_context(builder, &parent));
        Some(Box::new(Trace {
            tracer: self.tracer.clone(),
            request,
            upstream: None,
            origin,
            step_from: begun,
        }))
    }

    /// Sends what waits, at the end of the process.
    pub(crate) fn finish(&self) {
        let _ = self.provider.shutdown_with_timeout(FLUSH_TIME_MAX);
    }
}

impl Trace {
    /// The id of the trace, 32 hex digits.
    pub(crate) fn id(&self) -> String {
        self.request.span().span_context().trace_id().to_string()
    }

    /// The headers `traceparent` and `tracestate` for the upstream: its spans belong to ours.
    pub(crate) fn headers(&self) -> [String; 2] {
        let span = self.upstream.as_ref().unwrap_or(&self.request).span();
        let context = span.span_context();
        let parent = format!("00-{}-{}-01", context.trace_id(), context.span_id());
        [parent, context.trace_state().header()]
    }

    /// A step of the request is over. It began where the one before ended.
    pub(crate) fn step(&mut self, name: &'static str, now: u64) {
        let builder = SpanBuilder::from_name(name).with_start_time(self.at(self.step_from));
        let span = self.tracer.build_with_context(builder, &self.request);
        Context::new().with_span(span).span().end_with_timestamp(self.at(now));
        self.step_from = now;
    }

    /// The upstream that the request is at has failed, and another connection is looked for.
    pub(crate) fn leave_upstream(&mut self, now: u64) {
        if let Some(upstream) = self.upstream.take() {
            upstream.span().set_status(Status::error("the request went elsewhere"));
            upstream.span().end_with_timestamp(self.at(now));
        }
    }

    /// The request goes to this upstream.
    pub(crate) fn enter_upstream(&mut self, host: &str, port: u16, now: u64) {
        self.leave_upstream(now);
        let builder = SpanBuilder::from_name("upstream")
            .with_kind(SpanKind::Client)
            .with_start_time(self.at(now))
            .with_attributes([
                KeyValue::new("server.address", host.to_owned()),
                KeyValue::new("server.port", i64::from(port)),
            ]);
        let span = self.tracer.build_with_context(builder, &self.request);
        self.upstream = Some(Context::new().with_span(span));
    }

    /// The request is over: its method as it came, its route or endpoint, the status of its answer (0: there was none), the
    /// `errorType` of an answer of ours, and whether the answer broke off.
    pub(crate) fn end(
        &self,
        (method, route): (&[u8], Option<&str>),
        (status, error_type, is_broken): (u16, Option<&'static str>, bool),
        attributes: impl IntoIterator<Item = (&'static str, Option<Attribute>)>,
        now: u64,
    ) {
        let method = known_method(method);
        let shown = if method.starts_with('_') { "HTTP" } else { method };
        let request = self.request.span();
        request.update_name(match route {
            Some(route) => format!("{shown} {route}"),
            None => shown.to_owned(),
        });
        let known = attributes.into_iter().filter_map(|(key, value)| Some(KeyValue::new(key, value?)));
        request.set_attributes(known);
        if let Some(route) = route {
            request.set_attribute(KeyValue::new("http.route", route.to_owned()));
        }
        let upstream = self.upstream.as_ref().map(Context::span);
        // An error of ours is not the upstream's answer.
        let answered = status > 0 && error_type.is_none();
        let spans = [(Some(request), status > 0, 500), (upstream, answered, 400)];
        for (span, has_status, errors_from) in spans {
            let Some(span) = span else { continue };
            span.set_attribute(KeyValue::new("http.request.method", method));
            if has_status {
                span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
            }
            if let Some(error_type) = error_type {
                span.set_attribute(KeyValue::new("error.type", error_type.to_owned()));
            }
            // A mistake of the client is no error of a server (semantic conventions for HTTP).
            if is_broken || status >= errors_from {
                span.set_status(Status::error(""));
            }
            span.end_with_timestamp(self.at(now));
        }
    }

    fn at(&self, micros: u64) -> SystemTime {
        self.origin + Duration::from_micros(micros)
    }
}

/// A request that is dropped on its way, as at the end of the process, ends its spans so. Spans that have ended stay.
impl Drop for Trace {
    fn drop(&mut self) {
        for context in std::iter::once(&self.request).chain(&self.upstream) {
            context.span().set_status(Status::error("cut off"));
        }
    }
}

/// The service, as the variables of OpenTelemetry name it.
fn resource() -> Resource {
    const NAME: Key = Key::from_static_str("service.name");
    let resource = || {
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        Resource::builder().with_attribute(version)
    };
    let named = resource().build();
    let is_named = named.get(&NAME).is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    if is_named { named } else { resource().with_service_name("tiergate").build() }
}
