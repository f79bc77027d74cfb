//! JSON-RPC messages, read in one pass and without a tree: nesting costs no stack, and what decides nothing is skipped.
//!
//! Servers differ in which of two equal keys counts, and some compare keys without regard to case. So a key that decides stands once,
//! in its own spelling, or the message is refused.

use std::{borrow::Cow, fmt, mem};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::mcp::Problem;

const UNREADABLE: Problem = "it is no JSON-RPC message, or holds a key twice";

/// The most messages of a batch. One of them may ask for something: a batch is charged as one request.
const BATCH_MAX: usize = 64;

/// One message: a request, a notification, or the answer to a request. Of its parameters there are those that decide.
#[derive(Debug, Default)]
pub(crate) struct Message<'a> {
    /// Its id as it is written; `None` for a notification.
    pub(crate) id: Option<&'a str>,
    /// `None` for an answer.
    pub(crate) method: Option<Cow<'a, str>>,
    pub(crate) name: Option<Cow<'a, str>>,
    pub(crate) uri: Option<Cow<'a, str>>,
    /// The protocol's version that the message is written for.
    pub(crate) version: Option<Cow<'a, str>>,
}

/// The messages of a body.
#[derive(Debug)]
pub(crate) struct Messages<'a> {
    /// One, unless it is a batch.
    pub(crate) all: Vec<Message<'a>>,
    pub(crate) is_batch: bool,
}

impl<'a> Messages<'a> {
    /// Reads a body.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Problem> {
        // What is skipped is no text for the reader, but may be one for a server.
        let text = std::str::from_utf8(body).map_err(|_| UNREADABLE)?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let messages = reader.deserialize_any(Body).map_err(|_| UNREADABLE)?;
        reader.end().map_err(|_| UNREADABLE)?;
        Ok(messages)
    }
}

struct Body;

impl<'a> Visitor<'a> for Body {
    type Value = Messages<'a>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a message, or a list of some")
    }

    fn visit_map<A: MapAccess<'a>>(self, map: A) -> Result<Self::Value, A::Error> {
        let mut message = Message::default();
        Reader(Object::Message, &mut message).visit_map(map)?;
        Ok(Messages { all: vec![message], is_batch: false })
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut all, mut message) = (Vec::new(), Message::default());
        while list.next_element_seed(Reader(Object::Message, &mut message))?.is_some() {
            if all.len() == BATCH_MAX {
                return Err(A::Error::custom("a batch is too long"));
            }
            all.push(mem::take(&mut message));
        }
        Ok(Messages { all, is_batch: true })
    }
}

/// An object that holds what decides.
#[derive(Clone, Copy)]
enum Object {
    Message,
    Params,
    Meta,
}

/// Reads an object into its message.
struct Reader<'m, 'a>(Object, &'m mut Message<'a>);

impl<'a> DeserializeSeed<'a> for Reader<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Reader<'_, 'a> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    /// Parameters and metadata may be null.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if matches!(self.0, Object::Message) { Err(E::custom("no object")) } else { Ok(()) }
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(object, message) = self;
        let keys: &[&str] = match object {
            Object::Message => &["id", "method", "params"],
            Object::Params => &["name", "uri", "_meta"],
            Object::Meta => &["io.modelcontextprotocol/protocolVersion"],
        };
        let mut seen = [false; 3];
        while let Some(Text(key)) = map.next_key()? {
            let is_known = |known: &str| key == known || is_same(&key, known);
            let known = keys.iter().zip(&mut seen).zip(0..).find(|((known, _), _)| is_known(known));
            let Some(((known, seen), at)) = known else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if mem::replace(seen, true) || key != *known {
                return Err(A::Error::custom("a key stands twice, or in another spelling"));
            }
            match (object, at) {
                (Object::Message, 0) => message.id = Some(map.next_value::<&RawValue>()?.get()),
                (Object::Message, 1) => message.method = Some(map.next_value::<Text<'_>>()?.0),
                (Object::Message, _) => map.next_value_seed(Reader(Object::Params, message))?,
                (Object::Params, 0) => message.name = text(map.next_value()?)?,
                (Object::Params, 1) => message.uri = text(map.next_value()?)?,
                (Object::Params, _) => map.next_value_seed(Reader(Object::Meta, message))?,
                (Object::Meta, _) => message.version = text(map.next_value()?)?,
            }
        }
        Ok(())
    }
}

/// A string with its escapes decoded.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A value that is a string; `None` for any other.
fn text<'a, E: Error>(value: &'a RawValue) -> Result<Option<Cow<'a, str>>, E> {
    let Some(text) = value.get().strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return Ok(None);
    };
    if !text.contains('\\') {
        return Ok(Some(text.into()));
    }
    serde_json::from_str(value.get()).map(|Text(text)| Some(text)).map_err(E::custom)
}

/// True if a key is a known one in any case, as Unicode folds letters: `ſ` is an `s` to some servers.
fn is_same(key: &str, known: &str) -> bool {
    if key.is_ascii() {
        return key.eq_ignore_ascii_case(known);
    }
    let folded = key.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    // Letter by letter `İ` is an `i`, and as a text one with a dot above.
    folded.filter(|letter| *letter != '\u{307}').eq(known.chars().flat_map(char::to_lowercase))
}

#[cfg(test)]
mod tests {
    use super::{BATCH_MAX, Message, Messages};

    /// Method, name, URI and version of a message.
    fn one(body: &str) -> Option<[Option<String>; 4]> {
        let Messages { all, is_batch: false } = Messages::read(body.as_bytes()).ok()? else { return None };
        let Message { method, name, uri, version, .. } = all.into_iter().next()?;
        Some([method, name, uri, version].map(|text| text.map(Into::into)))
    }

    fn expected(texts: [&str; 4]) -> Option<[Option<String>; 4]> {
        Some(texts.map(|text| (!text.is_empty()).then(|| text.to_owned())))
    }

    #[test]
    fn a_message_is_read_whatever_the_order_and_spelling_of_its_strings() {
        let meta = r#""_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        for body in [
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"search",{meta},"arguments":{{}}}}}}"#
            ),
            format!(
                r#" {{"params":{{{meta},"arguments":{{"name":"x","params":[{{}}]}},"name":"search"}},"method":"tools/call"}} "#
            ),
            format!(
                r#"{{"m\u0065thod":"to\u006fls\/call","params":{{"\u006eame":"\u0073earch",{meta}}},"id":"a"}}"#
            ),
        ] {
            assert_eq!(one(&body), expected(["tools/call", "search", "", "2026-07-28"]), "{body}");
        }
        let read = r#"{"method":"resources/read","params":{"uri":"file:///\u00e4","name":7,"_meta":{}}}"#;
        assert_eq!(one(read), expected(["resources/read", "", "file:///ä", ""]));
        assert_eq!(one(r#"{"method":"tools/list","params":null}"#), expected(["tools/list", "", "", ""]));
        assert_eq!(one(r#"{"id":1,"result":{"method":"x","method":"y"}}"#), expected([""; 4]));
    }

    // threat: MCP: a tool by another name
    #[test]
    fn a_key_that_decides_stands_once_and_in_its_own_spelling() {
        let bodies = [
            r#"{"method":"ping","method":"tools/call"}"#,
            r#"{"method":"ping","m\u0065thod":"tools/call"}"#,
            r#"{"method":"ping","Method":"tools/call"}"#,
            r#"{"METHOD":"tools/call"}"#,
            r#"{"id":1,"id":2,"method":"ping"}"#,
            r#"{"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}"#,
            r#"{"method":"tools/call","paramſ":{"name":"b"},"params":{"name":"a"}}"#,
            r#"{"method":"tools/call","params":{"name":"a","name":"b"}}"#,
            r#"{"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
            r#"{"method":"resources/read","params":{"uri":"a","uri":"b"}}"#,
            r#"{"method":"resources/read","params":{"uri":"a","urİ":"b"}}"#,
            r#"{"method":"resources/read","params":{"uri":"a","ur\u0131":"b"}}"#,
            r#"{"method":"ping","params":{"_meta":{},"_meta":{}}}"#,
            r#"{"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1","io.modelcontextprotocol/protocolversion":"2"}}}"#,
            r#"[{"method":"ping","method":"tools/call"}]"#,
        ];
        for body in bodies {
            assert!(Messages::read(body.as_bytes()).is_err(), "{body}");
        }
        // Others are no business of ours.
        assert!(
            one(r#"{"method":"ping","x":1,"x":2,"params":{"arguments":{"a":1,"a":2},"names":1}}"#).is_some()
        );
    }

    #[test]
    fn every_other_body_is_refused_at_every_length() {
        let body = r#"{"jsonrpc":"2.0","id":"ä","method":"tools/call","params":{"name":"s\u0065arch","arguments":{"a":[1,{}]}}}"#;
        assert!(one(body).is_some());
        for end in 0..body.len() {
            assert!(Messages::read(&body.as_bytes()[..end]).is_err(), "{end}");
        }
        for wrong in [
            "",
            " ",
            "1",
            "null",
            "\"method\"",
            "{}{}",
            "{} x",
            "\u{feff}{}",
            r#"{"method":null}"#,
            r#"{"method":1}"#,
            r#"{"method":"a","params":["search"]}"#,
            r#"{"method":"a","params":1}"#,
            r#"{"method":"\ud800"}"#,
            r#"{"method":"a","params":{"name":"\ud800"}}"#,
            r#"{"method":"a",}"#,
            r#"{'method':'a'}"#,
            r#"{"method":"a"/**/}"#,
            "[1]",
            "[[]]",
            r#"{"x":"\u00"}"#,
        ] {
            assert!(Messages::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(Messages::read(b"{\"x\":\"\xff\"}").is_err());
        let batch = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
        assert!(Messages::read(batch(BATCH_MAX).as_bytes()).is_ok());
        assert!(Messages::read(batch(BATCH_MAX + 1).as_bytes()).is_err());
    }

    // threat: Huge or costly heads and bodies
    #[test]
    fn nesting_costs_no_stack() {
        let (deep, end) = ("[".repeat(500_000), "]".repeat(500_000));
        let body =
            format!(r#"{{"method":"tools/call","params":{{"arguments":{deep}{end},"name":"search"}}}}"#);
        assert_eq!(one(&body), expected(["tools/call", "search", "", ""]));
        assert!(one(&body.replace(']', "")).is_none());
        let body = format!(r#"{{"method":"tools/call","params":{{"name":{deep}{end}}}}}"#);
        assert_eq!(one(&body), expected(["tools/call", "", "", ""]));
    }

    #[test]
    fn each_message_of_a_batch_is_read() {
        let body =
            r#"[{"id":1,"method":"ping"},{"id":[2],"result":{}},{"method":"notifications/initialized"}]"#;
        let messages = Messages::read(body.as_bytes()).unwrap();
        assert!(messages.is_batch);
        let read: Vec<_> = messages.all.iter().map(|one| (one.id, one.method.as_deref())).collect();
        let expected =
            [(Some("1"), Some("ping")), (Some("[2]"), None), (None, Some("notifications/initialized"))];
        assert_eq!(read, expected);
    }
}
