//! Traces of requests: spans in the terms of OpenTelemetry, sent to a collector by OTLP.
//!
//! The trace of a client is continued (W3C Trace Context), and its client says if it is sampled. Spans wait in a bounded
//! queue, and a thread of the library sends them: no request waits for the collector, and what there is no room for is
//! dropped.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
/// The value of an attribute.
pub use opentelemetry::Value as Attribute;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use prometheus::IntCounterVec;
use reqwest::blocking::Client;
use reqwest::redirect::Policy;

use crate::ports::clock::Clock;
use crate::telemetry::faults::FaultLog;
use crate::telemetry::metrics::Metrics;

/// How long the collector may take for one batch.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(10);

/// How long the end of the process waits for spans that were not sent.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);

/// Begins traces.
#[derive(Debug)]
pub struct Tracer {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// The trace of one request that is sampled.
#[derive(Debug)]
pub struct Trace {
    tracer: SdkTracer,
    /// Our span of the whole request.
    request: Context,
    /// The span of the upstream that it is at.
    upstream: Option<Context>,
    /// The wall clock at monotonic time 0.
    origin: SystemTime,
    /// Where the next step begins, in monotonic microseconds.
    step_from: u64,
}

/// The headers that carry a trace.
struct Carrier<'a> {
    parent: Option<&'a str>,
    state: Option<&'a str>,
}

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.parent,
            "tracestate" => self.state,
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// Sends batches to the collector, and counts them.
#[derive(Debug)]
struct Collector {
    http: Client,
    exports: IntCounterVec,
    faults: Faults,
}

/// The log of batches that were not taken.
struct Faults(FaultLog);

impl std::fmt::Debug for Faults {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Faults")
    }
}

/// A batch that was not taken, for the log.
#[derive(Debug, thiserror::Error)]
#[error("the collector of traces did not take a batch: {0}")]
struct NotTaken(String);

#[async_trait]
impl HttpClient for Collector {
    /// The library retries what may be tried again, and calls this on a thread of its own, which may block.
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
            self.faults.0.note(&NotTaken(problem));
        }
        answer
    }
}

impl Tracer {
    /// A tracer to the collector at `endpoint`. Of requests that come without a trace one in `one_in` is traced.
    ///
    /// # Errors
    ///
    /// When no HTTP client can be made, or a variable `OTEL_…` of the environment is wrong.
    pub fn new(
        endpoint: &str,
        one_in: u32,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let http = Client::builder().redirect(Policy::none()).no_proxy().timeout(EXPORT_TIME_MAX).build()?;
        let faults = Faults(FaultLog::new("traces", Arc::clone(clock)));
        let collector = Collector { http, exports: metrics.trace_exports.clone(), faults };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIME_MAX)
            .with_http_client(collector)
            .build()?;
        let ratio = if one_in == 0 { 0.0 } else { 1.0 / f64::from(one_in) };
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)));
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let named = std::env::var("OTEL_SERVICE_NAME").is_ok();
        let resource = Resource::builder().with_attribute(version);
        let resource = if named { resource } else { resource.with_service_name("tiergate") };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(sampler)
            .with_resource(resource.build())
            .build();
        let tracer = provider.tracer("tiergate");
        Ok(Self { provider, tracer, propagator: TraceContextPropagator::new() })
    }

    /// The trace of a request whose head had been read at `begun`, in monotonic microseconds, with the values of its
    /// headers `traceparent` and `tracestate`. `None`: it is not sampled.
    #[must_use]
    pub fn begin(
        &self,
        parent: Option<&[u8]>,
        state: &[u8],
        begun: u64,
        clock: &dyn Clock,
    ) -> Option<Box<Trace>> {
        let parent = parent.and_then(|value| std::str::from_utf8(value).ok());
        let state = std::str::from_utf8(state).ok();
        let remote = self.propagator.extract_with_context(&Context::new(), &Carrier { parent, state });
        let now = UNIX_EPOCH + Duration::from_millis(clock.unix_millis());
        let origin = now - Duration::from_micros(clock.monotonic_micros());
        let builder = SpanBuilder::from_name("request")
            .with_kind(SpanKind::Server)
            .with_start_time(origin + Duration::from_micros(begun));
        let span = self.tracer.build_with_context(builder, &remote);
        let request = Context::new().with_span(span);
        let is_sampled = request.span().span_context().is_sampled();
        let tracer = self.tracer.clone();
        is_sampled.then(|| Box::new(Trace { tracer, request, upstream: None, origin, step_from: begun }))
    }

    /// Sends what waits, at the end of the process.
    pub fn finish(&self) {
        let _ = self.provider.shutdown_with_timeout(FLUSH_TIME_MAX);
    }
}

impl Trace {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> String {
        self.request.span().span_context().trace_id().to_string()
    }

    /// The headers `traceparent` and `tracestate` for the upstream: its spans belong to ours.
    #[must_use]
    pub fn headers(&self) -> [String; 2] {
        let span = self.upstream.as_ref().unwrap_or(&self.request).span();
        let context = span.span_context();
        let flags = context.trace_flags().to_u8();
        let parent = format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id());
        [parent, context.trace_state().header()]
    }

    /// A step of the request is over. It began where the one before ended.
    pub fn step(&mut self, name: &'static str, now: u64) {
        let builder = SpanBuilder::from_name(name).with_start_time(self.at(self.step_from));
        let span = self.tracer.build_with_context(builder, &self.request);
        Context::new().with_span(span).span().end_with_timestamp(self.at(now));
        self.step_from = now;
    }

    /// The request goes to an upstream, maybe to another one.
    pub fn to_upstream(&mut self, host: &str, port: u16, now: u64) {
        if let Some(upstream) = self.upstream.take() {
            upstream.span().set_status(Status::error("another one was tried"));
            upstream.span().end_with_timestamp(self.at(now));
        }
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

    /// The request is over. The names of attributes are those of OpenTelemetry, where it has one.
    pub fn end(
        &self,
        name: String,
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
        now: u64,
    ) {
        let request = self.request.span();
        request.update_name(Cow::<'static, str>::from(name));
        for (key, value) in attributes {
            request.set_attribute(KeyValue::new(key, value));
            if key == "error.type" {
                request.set_status(Status::error(""));
            }
        }
        if let Some(upstream) = &self.upstream {
            upstream.span().end_with_timestamp(self.at(now));
        }
        request.end_with_timestamp(self.at(now));
    }

    fn at(&self, micros: u64) -> SystemTime {
        self.origin + Duration::from_micros(micros)
    }
}
