//! JSON-RPC messages, read in one pass and without a tree: nesting costs no stack, and what decides nothing is skipped.
//!
//! Servers differ in which of two equal keys counts, and some compare keys without regard to case. So a key that decides stands once,
//! in its own spelling, or the message is refused.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::mcp::Problem;

const UNREADABLE: Problem = "it is no JSON-RPC message, or holds a key twice";

/// The most messages of a batch. One of them may ask for something: a batch is charged as one request.
const BATCH_MAX: usize = 64;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// One message: a request, a notification, or the answer to a request.
#[derive(Debug, Default)]
pub(crate) struct Message<'a> {
    /// Its id as it is written; `None` for a notification.
    pub(crate) id: Option<&'a str>,
    /// `None` for an answer.
    pub(crate) method: Option<Cow<'a, str>>,
    pub(crate) params: Params<'a>,
}

/// The parameters that decide.
#[derive(Debug, Default)]
pub(crate) struct Params<'a> {
    pub(crate) name: Option<Cow<'a, str>>,
    pub(crate) uri: Option<Cow<'a, str>>,
    /// The protocol's version that the message is written for.
    pub(crate) version: Option<Cow<'a, str>>,
}

/// The messages of a body.
#[derive(Debug)]
pub(crate) enum Messages<'a> {
    One(Message<'a>),
    Batch(Vec<Message<'a>>),
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

/// The place of a key among those that decide; `None` for others.
struct Key<'k>(&'k [&'static str]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Option<usize>, E> {
        let own = self.0.iter().position(|known| *known == key);
        if own.is_none() && self.0.iter().any(|known| is_same(key, known)) {
            return Err(E::custom("another spelling of a key"));
        }
        Ok(own)
    }
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

/// Reads an object's known keys, each once. `read` gets the place of the key.
fn read_keys<'de, A: MapAccess<'de>, const N: usize>(
    map: &mut A,
    keys: &[&'static str; N],
    mut read: impl FnMut(usize, &mut A) -> Result<(), A::Error>,
) -> Result<(), A::Error> {
    let mut seen = [false; N];
    while let Some(key) = map.next_key_seed(Key(keys))? {
        match key.and_then(|at| Some((at, seen.get_mut(at)?))) {
            Some((_, true)) => return Err(A::Error::custom("a key stands twice")),
            Some((at, seen)) => {
                *seen = true;
                read(at, map)?;
            }
            None => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    Ok(())
}

struct Body;

impl<'de> Visitor<'de> for Body {
    type Value = Messages<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a message, or a list of some")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        One.visit_map(map).map(Messages::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut messages = Vec::new();
        while let Some(message) = list.next_element_seed(One)? {
            if messages.len() == BATCH_MAX {
                return Err(A::Error::custom("a batch is too long"));
            }
            messages.push(message);
        }
        Ok(Messages::Batch(messages))
    }
}

/// A visitor of objects as the seed of one.
macro_rules! seed {
    ($($name:ident -> $value:ty),*) => {$(
        impl<'de> DeserializeSeed<'de> for $name {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    )*};
}

seed!(One -> Message<'de>, OfParams -> Params<'de>, Version -> Option<Cow<'de, str>>, Text -> Option<Cow<'de, str>>);

struct One;

impl<'de> Visitor<'de> for One {
    type Value = Message<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut message = Message::default();
        read_keys(&mut map, &["id", "method", "params"], |at, map| {
            match at {
                0 => message.id = Some(map.next_value::<&RawValue>()?.get()),
                1 => {
                    let method = map.next_value_seed(Text)?;
                    message.method = Some(method.ok_or_else(|| A::Error::custom("no method"))?);
                }
                _ => message.params = map.next_value_seed(OfParams)?,
            }
            Ok(())
        })?;
        Ok(message)
    }
}

struct OfParams;

impl<'de> Visitor<'de> for OfParams {
    type Value = Params<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("parameters by name")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Params::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut params = Params::default();
        read_keys(&mut map, &["name", "uri", "_meta"], |at, map| {
            match at {
                0 => params.name = map.next_value_seed(Text)?,
                1 => params.uri = map.next_value_seed(Text)?,
                _ => params.version = map.next_value_seed(Version)?,
            }
            Ok(())
        })?;
        Ok(params)
    }
}

/// The version in `_meta`.
struct Version;

impl<'de> Visitor<'de> for Version {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("metadata")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut version = None;
        read_keys(&mut map, &[VERSION], |_, map| {
            version = map.next_value_seed(Text)?;
            Ok(())
        })?;
        Ok(version)
    }
}

/// A string with its escapes decoded; `None` for any other value.
struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned().into()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_seq(list).map(|_| None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_map(map).map(|_| None)
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_MAX, Message, Messages};

    /// Method, name, URI and version of a message.
    fn one(body: &str) -> Option<[Option<String>; 4]> {
        let messages = Messages::read(body.as_bytes()).ok()?;
        let Messages::One(Message { method, params, .. }) = messages else { return None };
        Some([method, params.name, params.uri, params.version].map(|text| text.map(Into::into)))
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
        let Messages::Batch(messages) = messages else { panic!("no batch") };
        let read: Vec<_> = messages.iter().map(|one| (one.id, one.method.as_deref())).collect();
        let expected =
            [(Some("1"), Some("ping")), (Some("[2]"), None), (None, Some("notifications/initialized"))];
        assert_eq!(read, expected);
    }
}
