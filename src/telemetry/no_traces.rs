//! No traces: what stands for them in a program that is built without the feature `traces`.
#![expect(missing_docs, reason = "it is that of traces.rs")]

use std::error::Error;
use std::sync::Arc;

/// The value of an attribute.
pub use serde_json::Value as Attribute;

use crate::ports::clock::Clock;
use crate::telemetry::metrics::Metrics;

/// There is none.
#[derive(Debug)]
pub enum Tracer {}

/// There is none.
#[derive(Debug)]
pub enum Trace {}

#[expect(clippy::missing_const_for_fn, clippy::uninhabited_references, reason = "as with the feature")]
impl Tracer {
    pub fn new(
        _: &str,
        _: u32,
        _: &Arc<dyn Clock>,
        _: &Metrics,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Err("the program is built without the feature \"traces\"".into())
    }

    pub fn begin(&self, _: Option<&[u8]>, _: &[u8], _: u64, _: &dyn Clock) -> Option<Box<Trace>> {
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

    pub fn to_upstream(&mut self, _: &str, _: u16, _: u64) {
        match *self {}
    }

    pub fn end(&self, _: String, _: impl IntoIterator<Item = (&'static str, Attribute)>, _: u64) {
        match *self {}
    }
}
