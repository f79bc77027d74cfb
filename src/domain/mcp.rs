//! Calls of the Model Context Protocol as routes select by them: the method of a JSON-RPC message, and the name of the tool, prompt or
//! resource.

use std::borrow::Cow;

/// The method whose name is a tool's.
pub const TOOL_CALL: &str = "tools/call";

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<'a> {
    /// Its method, such as `tools/call`; empty for the answer to one.
    pub method: Cow<'a, str>,
    /// The tool, prompt or resource; nothing for methods that have none.
    pub name: Option<Cow<'a, str>>,
}

/// The calls that a route takes, and no others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallPatterns {
    /// Methods.
    pub methods: Vec<NamePattern>,
    /// Tools.
    pub tools: Vec<NamePattern>,
}

/// An exact name, or the beginning of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    text: Box<str>,
    is_beginning: bool,
}

/// How messages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpRules {
    /// The longest message that is read, in bytes.
    pub body_bytes_max: usize,
    /// The fate of longer ones.
    pub large_bodies: LargeBodies,
}

/// The fate of messages that are too long to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeBodies {
    /// They are refused.
    Refuse,
    /// Their headers decide, in revisions that have some.
    Headers,
}

/// True for a method of MCP as routes name it: all but these two have a slash, which no method of HTTP has.
pub fn is_method(text: &str) -> bool {
    text.contains('/') || matches!(text, "initialize" | "ping")
}

impl<'a> Call<'a> {
    /// A call of a method, of the tool, prompt or resource of this name.
    pub fn new(method: &'a str, name: Option<&'a str>) -> Self {
        Self { method: method.into(), name: name.map(Into::into) }
    }
}

impl CallPatterns {
    /// True if a call is one of these.
    pub fn take(&self, call: &Call<'_>) -> bool {
        let is_tool =
            || call.method == TOOL_CALL && call.name.as_ref().is_some_and(|name| any(&self.tools, name));
        any(&self.methods, &call.method) || is_tool()
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.methods.is_empty() && self.tools.is_empty()
    }

    /// Each pattern as a method, with a tool's name behind it.
    pub fn written(&self) -> impl Iterator<Item = String> {
        let tools = self.tools.iter().map(|tool| format!("{TOOL_CALL} {}", tool.written()));
        self.methods.iter().map(NamePattern::written).chain(tools)
    }
}

fn any(patterns: &[NamePattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

impl NamePattern {
    /// A pattern as it is written: of 1 to 128 visible ASCII characters, `*` only at the end, no blanks.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, is_beginning) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        let is_name = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
        let is_right = is_name && (1..=128).contains(&text.len());
        is_right.then(|| Self { text: name.into(), is_beginning })
    }

    /// True if a name is meant. Names are compared byte by byte.
    pub fn matches(&self, name: &str) -> bool {
        if self.is_beginning { name.starts_with(&*self.text) } else { *name == *self.text }
    }

    fn written(&self) -> String {
        format!("{}{}", self.text, if self.is_beginning { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, CallPatterns, NamePattern};

    #[test]
    fn a_pattern_is_a_name_or_the_beginning_of_names() {
        for (pattern, taken, others) in [
            ("search", &["search"][..], &["Search", "search_all", "searc", ""][..]),
            ("billing_*", &["billing_", "billing_pay"], &["billing", "BILLING_pay", "xbilling_"]),
            ("*", &["", "anything"], &[]),
        ] {
            let pattern = NamePattern::parse(pattern).unwrap();
            assert!(taken.iter().all(|name| pattern.matches(name)), "{pattern:?}");
            assert!(!others.iter().any(|name| pattern.matches(name)), "{pattern:?}");
        }
        for wrong in ["", "a*b", "**", "a b", "ä", &"a".repeat(129)] {
            assert_eq!(NamePattern::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tools_are_those_of_calls_and_methods_are_all_others_too() {
        let list = |text: &str| text.split_whitespace().map(|one| NamePattern::parse(one).unwrap()).collect();
        let patterns = CallPatterns { methods: list("resources/* ping"), tools: list("search billing_*") };
        let takes = |method, name| patterns.take(&Call::new(method, name));
        assert!(takes("tools/call", Some("search")) && takes("tools/call", Some("billing_pay")));
        assert!(takes("resources/read", Some("search")) && takes("ping", None));
        assert!(!takes("tools/call", Some("other")) && !takes("tools/call", None));
        assert!(!takes("prompts/get", Some("search")) && !takes("", None) && !takes("tools/list", None));
        assert_eq!(
            patterns.written().collect::<Vec<_>>().join(","),
            "resources/*,ping,tools/call search,tools/call billing_*"
        );
    }
}
