//! No traces: what stands for them in a program that is built without the feature `traces`.
#![expect(missing_docs, reason = "it is that of traces.rs")]

use std::error::Error;
use std::sync::Arc;

pub use serde_json::Value as Attribute;

use crate::domain::trace::RemoteSpan;
use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traced::{Outcome, TracerSettings};

/// Is never made.
#[derive(Debug)]
pub enum Tracer {}

/// Is never made.
#[derive(Debug)]
pub enum Trace {}

#[expect(clippy::missing_const_for_fn, clippy::uninhabited_references, reason = "as with the feature")]
impl Tracer {
    pub fn new(
        _: &TracerSettings<'_>,
        _: &Arc<dyn Clock>,
        _: &Metrics,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Err("the program is built without the feature \"traces\"".into())
    }

    pub fn begin(&self, _: Option<RemoteSpan<'_>>, _: impl FnOnce() -> String, _: u64) -> Option<Box<Trace>> {
        match *self {}
    }

    pub fn finish(&self) {
        match *self {}
    }
}

#[expect(clippy::missing_const_for_fn, clippy::uninhabited_references, reason = "as with the feature")]
impl Trace {
    pub fn id(&self) -> String {
        match *self {}
    }

    pub fn headers(&self) -> [String; 2] {
        match *self {}
    }

    pub fn step(&mut self, _: &'static str, _: u64) {
        match *self {}
    }

    pub fn leave_upstream(&mut self, _: u64) {
        match *self {}
    }

    pub fn to_upstream(&mut self, _: &str, _: u16, _: u64) {
        match *self {}
    }

    pub fn end(
        &self,
        _: &Outcome<'_>,
        _: impl IntoIterator<Item = (&'static str, Option<Attribute>)>,
        _: u64,
    ) {
        match *self {}
    }
}
