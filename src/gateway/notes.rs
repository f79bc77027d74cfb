//! Notes about a request of MCP.

use crate::gateway::held::HeldBytes;
use crate::mcp::List;

/// Notes about a request of MCP.
#[derive(Default)]
pub(super) struct McpNotes {
    /// The id of its message, as it is written.
    pub(super) id: Option<Box<str>>,
    /// The list that it asks for, and its path.
    pub(super) list: Option<(List, Box<[u8]>)>,
    /// Memory for its message until that is under way.
    pub(super) held: Option<HeldBytes>,
}
