//! Notes that the corridor takes of a request.

use std::sync::Arc;

use bytes::Bytes;

use crate::gateway::checked_body::CheckedBody;
use crate::gateway::held::HeldRoom;
use crate::mcp::listing::List;
use crate::ports::clock::Clock;
use crate::telemetry::traces::Trace;

/// Notes for the log and the trace.
#[derive(Default)]
pub(super) struct Notes {
    /// The kind of credential that was read.
    pub(super) credential: Option<&'static str>,
    /// The body of a signed request, to be compared with its digest.
    pub(super) body: Option<Box<CheckedBody>>,
    /// That body, if it was held, once it is whole and right.
    pub(super) whole: Option<Bytes>,
    /// A message of MCP that the library keeps too, until the body is looked at.
    pub(super) message: Option<Vec<u8>>,
    /// The trace of a request that is sampled.
    pub(super) trace: Option<Box<Trace>>,
}

/// Notes about a request of MCP.
#[derive(Default)]
pub(super) struct McpNotes {
    /// The id of its message, as it is written.
    pub(super) id: Option<Box<str>>,
    /// The list that it asks for, and its path.
    pub(super) list: Option<(List, Box<[u8]>)>,
    /// Room for its message until that is under way.
    pub(super) room: Option<HeldRoom>,
}

impl Notes {
    /// A step is over.
    pub(super) fn step(&mut self, name: &'static str, clock: &Arc<dyn Clock>) {
        if let Some(trace) = &mut self.trace {
            trace.step(name, clock.monotonic_micros());
        }
    }
}
