//! `[mcp]`: how messages of the Model Context Protocol are read.

use crate::config::reader::Reader;
use crate::domain::{LargeBodies, McpRules};

/// The most that the library keeps of a body which is read before it is forwarded.
const BODY_BYTES: std::ops::RangeInclusive<i64> = 1_024..=65_536;

const LARGE: [(&str, LargeBodies); 2] = [("refuse", LargeBodies::Refuse), ("headers", LargeBodies::Headers)];

impl McpRules {
    pub(super) fn read(reader: &mut Reader) -> Option<Self> {
        read_all!(reader: Self {
            /// The longest message that is read before its call is decided about, 1024 to 65536 bytes.
            body_bytes_max: reader.integer("mcp.max_body", 65_536, &BODY_BYTES),
            /// The fate of longer ones: "refuse" (413), or "headers": those of clients of 2026-07-28 and later pass by what their headers
            /// say, and the server has to compare the two.
            large_bodies: reader.word("mcp.large_bodies", "refuse", &LARGE),
        })
    }
}
