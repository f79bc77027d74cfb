//! Lists of tools, prompts and resources, from which everything is taken that the client may not call.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::domain::Call;

/// The longest list, and the longest event that may hold one, in bytes.
const LIST_BYTES_MAX: usize = 1024 * 1024;

/// The most items of a list: each is compared with all that its tenant's routes take, while others wait.
const ITEMS_MAX: usize = 4_096;

/// A list of things that can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// An answer that is no list that can be read: too long, twice there, or broken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// The rule for what a list shows: true for each of these calls that the client may make.
pub(crate) type Shows = Box<dyn Fn(&[Call<'_>]) -> Vec<bool> + Send + Sync>;

impl List {
    /// The list that a method asks for.
    pub(super) fn of(method: &str) -> Option<Self> {
        Some(match method {
            "tools/list" => Self::Tools,
            "prompts/list" => Self::Prompts,
            "resources/list" => Self::Resources,
            "resources/templates/list" => Self::Templates,
            _ => return None,
        })
    }

    /// The field of the result that holds it, the method that calls one of it, and the field with its name.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Tools => ("tools", "tools/call", "name"),
            Self::Prompts => ("prompts", "prompts/get", "name"),
            Self::Resources => ("resources", "resources/read", "uri"),
            Self::Templates => ("resourceTemplates", "resources/read", "uriTemplate"),
        }
    }
}

/// Filters an answer that comes in pieces.
pub(crate) struct Filter {
    list: List,
    shows: Shows,
    /// How long a client may keep the list, in milliseconds.
    ttl_max: u64,
    /// True if the list comes in an event.
    is_events: bool,
    held: Vec<u8>,
    /// How much of it was searched for the end of an event.
    searched: usize,
    /// After an event whose last byte is a `\r`, which a `\n` may follow: true if that event went on as it was.
    after_cr: Option<bool>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Filter").field("list", &self.list).finish_non_exhaustive()
    }
}

impl Filter {
    pub(crate) fn new(list: List, shows: Shows, ttl_max: u64) -> Self {
        Self { list, shows, ttl_max, is_events: false, held: Vec::new(), searched: 0, after_cr: None }
    }

    /// Reads the media type of the answer. False if no client takes a list of it.
    pub(crate) fn begin(&mut self, media_type: &[u8]) -> bool {
        let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        self.is_events = media_type.eq_ignore_ascii_case(b"text/event-stream");
        self.is_events || media_type.eq_ignore_ascii_case(b"application/json")
    }

    /// Takes the next piece, and gives what goes on.
    pub(crate) fn push(&mut self, piece: &[u8], is_last: bool) -> Result<Vec<u8>, Unreadable> {
        let mut out = Vec::new();
        let own = match piece.split_first() {
            Some((b'\n', rest)) if self.after_cr.is_some() => {
                out.extend(self.after_cr.filter(|is_as_it_was| *is_as_it_was).map(|_| b'\n'));
                rest
            }
            _ => piece,
        };
        if !piece.is_empty() {
            self.after_cr = None;
        }
        self.held.extend_from_slice(own);
        if self.is_events {
            let (mut at, mut searched) = (0, self.searched);
            while let Some(end) = end_of_event(self.held.get(at..).unwrap_or_default(), &mut searched) {
                let event = self.held.get(at..at + end).unwrap_or_default();
                let is_as_it_was = self.write_event(event, &mut out)?;
                let may_go_on = event.ends_with(b"\r") && at + end == self.held.len();
                self.after_cr = may_go_on.then_some(is_as_it_was);
                at += end;
            }
            // Once for all events of a piece: there may be thousands.
            self.held.drain(..at);
            self.searched = searched;
        }
        if self.held.len() > LIST_BYTES_MAX {
            return Err(Unreadable);
        }
        if is_last {
            let rest = std::mem::take(&mut self.held);
            // Of events clients take it for none: it has no end.
            if !self.is_events {
                out = self.filtered(&rest)?.unwrap_or(rest);
            }
        }
        Ok(out)
    }

    /// Writes an event with its list filtered. True if it holds none, and goes on as it was.
    fn write_event(&self, event: &[u8], out: &mut Vec<u8>) -> Result<bool, Unreadable> {
        let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let lines = || event.split(is_break).filter(|line| !line.is_empty());
        let of_data = |line: &'_ [u8]| {
            let rest = line.strip_prefix(b"data")?;
            if rest.is_empty() {
                return Some(0..0);
            }
            let value = rest.strip_prefix(b":")?;
            let value = value.strip_prefix(b" ").unwrap_or(value);
            Some(line.len() - value.len()..line.len())
        };
        let data: Vec<&[u8]> = lines().filter_map(|line| line.get(of_data(line)?)).collect();
        let Some(message) = self.filtered(&data.join(&b'\n'))? else {
            out.extend_from_slice(event);
            return Ok(true);
        };
        for line in lines().filter(|line| of_data(line).is_none()) {
            out.extend_from_slice(line);
            out.push(b'\n');
        }
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&message);
        out.extend_from_slice(b"\n\n");
        Ok(false)
    }

    /// The message without what its client may not call; `None`: it holds no such list.
    fn filtered(&self, message: &[u8]) -> Result<Option<Vec<u8>>, Unreadable> {
        let Ok(message) = serde_json::from_slice::<Object<'_>>(message) else { return Ok(None) };
        let (field, ..) = self.list.names();
        let mut lists = 0;
        let message = message.rewritten(|key, value| {
            if key != "result" {
                return Ok(None);
            }
            let Ok(result) = serde_json::from_str::<Object<'_>>(value) else { return Ok(None) };
            lists += result.0.iter().filter(|(key, _)| key == field).count();
            if lists > 1 {
                return Err(Unreadable);
            }
            result
                .rewritten(|key, value| match key {
                    "cacheScope" => Ok(Some("\"private\"".to_owned())),
                    "ttlMs" => {
                        let ttl = serde_json::from_str::<f64>(value).unwrap_or_default();
                        Ok((ttl > self.ttl_max as f64).then(|| self.ttl_max.to_string()))
                    }
                    _ if key == field => self.items(value).map(Some),
                    _ => Ok(None),
                })
                .map(Some)
        })?;
        Ok((lists > 0).then(|| message.into_bytes()))
    }

    /// The items that are shown.
    fn items(&self, list: &str) -> Result<String, Unreadable> {
        let items: Vec<&RawValue> = serde_json::from_str(list).map_err(|_| Unreadable)?;
        if items.len() > ITEMS_MAX {
            return Err(Unreadable);
        }
        let (_, method, key) = self.list.names();
        let mut named = Vec::new();
        for item in items {
            let Object(fields) = serde_json::from_str(item.get()).map_err(|_| Unreadable)?;
            let names = fields.iter().filter(|(own, _)| own == key);
            let names: Option<Vec<String>> =
                names.map(|(_, name)| serde_json::from_str(name.get()).ok()).collect();
            // A name that stands twice, or is no name, can't be told: who reads it otherwise must not see more.
            let Ok([name]) = <[String; 1]>::try_from(names.unwrap_or_default()) else { continue };
            named.push((item.get(), Call { method: method.into(), name: Some(name.into()) }));
        }
        let (mut kept, calls): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let mut shown = (self.shows)(&calls).into_iter();
        kept.retain(|_| shown.next() == Some(true));
        Ok(format!("[{}]", kept.join(",")))
    }
}

/// The end of the first event: behind its empty line.
fn end_of_event(bytes: &[u8], searched: &mut usize) -> Option<usize> {
    // Two line ends with nothing between them. The last bytes are searched again.
    let start = searched.saturating_sub(3);
    let here = bytes.get(start..).unwrap_or_default();
    let mut at = 0;
    while let Some(rest) = here.get(at..).filter(|rest| !rest.is_empty()) {
        let line_end = |bytes: &[u8]| match bytes {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => 0,
        };
        let first = line_end(rest);
        let second = line_end(rest.get(first..).unwrap_or_default());
        if first > 0 && second > 0 {
            *searched = 0;
            return Some(start + at + first + second);
        }
        at += first.max(1);
    }
    *searched = bytes.len();
    None
}

/// An object's fields, whose values are as they were written.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl Object<'_> {
    /// The object with the values that are replaced.
    fn rewritten(
        &self,
        mut replace: impl FnMut(&str, &str) -> Result<Option<String>, Unreadable>,
    ) -> Result<String, Unreadable> {
        let mut out = String::from("{");
        for (at, (key, value)) in self.0.iter().enumerate() {
            out.push_str(if at > 0 { "," } else { "" });
            out.push_str(&serde_json::to_string(key).map_err(|_| Unreadable)?);
            out.push(':');
            out.push_str(replace(key, value.get())?.as_deref().unwrap_or(value.get()));
        }
        out.push('}');
        Ok(out)
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Filter, ITEMS_MAX, LIST_BYTES_MAX, List, Unreadable};

    fn are_few(calls: &[Call<'_>]) -> Vec<bool> {
        assert!(calls.len() <= ITEMS_MAX);
        let is_shown = |call: &Call<'_>| {
            matches!(call.method.as_ref(), "tools/call" | "resources/read")
                && call.name.as_deref() != Some("pay")
        };
        calls.iter().map(is_shown).collect()
    }

    /// The answer, in pieces of so many bytes.
    fn passed(list: List, media_type: &str, answer: &str, size: usize) -> Result<String, Unreadable> {
        let mut filter = Filter::new(list, Box::new(are_few), 60_000);
        assert!(filter.begin(media_type.as_bytes()));
        let mut out = Vec::new();
        for piece in answer.as_bytes().chunks(size) {
            out.extend(filter.push(piece, false)?);
        }
        out.extend(filter.push(b"", true)?);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_list_holds_what_may_be_called_and_all_else_stays_as_it_was() {
        let answer = r#"{"jsonrpc":"2.0", "id":1,"result":{"tools":[{"name":"search","inputSchema":{"a" :1}},{"title":"x","name":"p\u0061y"},{"name":"a"}],"nextCursor":"c", "cacheScope":"public","ttlMs":3600000}}"#;
        let expected = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"search","inputSchema":{"a" :1}},{"name":"a"}],"nextCursor":"c","cacheScope":"private","ttlMs":60000}}"#;
        for size in 1..answer.len() {
            assert_eq!(
                passed(List::Tools, "Application/JSON; charset=utf-8", answer, size).unwrap(),
                expected
            );
        }
        let resources =
            r#"{"result":{"resources":[{"uri":"pay","name":"a"},{"uri":"b","name":"pay"}],"ttlMs":5}}"#;
        let shown = r#"{"result":{"resources":[{"uri":"b","name":"pay"}],"ttlMs":5}}"#;
        assert_eq!(passed(List::Resources, "application/json", resources, 9).unwrap(), shown);
        let prompts =
            passed(List::Prompts, "application/json", r#"{"result":{"prompts":[{"name":"a"}]}}"#, 9);
        assert_eq!(prompts.unwrap(), r#"{"result":{"prompts":[]}}"#);
        let templates = r#"{"result":{"resourceTemplates":[{"uriTemplate":"pay"},{"uriTemplate":"c"}]}}"#;
        let templates = passed(List::Templates, "application/json", templates, 9);
        assert_eq!(templates.unwrap(), r#"{"result":{"resourceTemplates":[{"uriTemplate":"c"}]}}"#);
    }

    #[test]
    fn an_event_with_a_list_is_filtered_and_the_others_pass_at_once() {
        let progress = ": ping\r\n\r\nid: 1\ndata: {\"method\":\"notifications/progress\"}\n\n\r\r";
        let list = "event: message\ndata: {\"result\":{\"tools\":[{\"name\":\"pay\"},\ndata:{\"name\":\"b\"}]}}\nid: 2\n\n";
        let shown = "event: message\nid: 2\ndata: {\"result\":{\"tools\":[{\"name\":\"b\"}]}}\n\n";
        for ends in ["\n", "\r\n", "\r"] {
            let list = list.replace('\n', ends);
            let answer = format!("{progress}{list}{list}data: cut");
            for size in 1..answer.len() {
                let out = passed(List::Tools, "text/event-stream", &answer, size).unwrap();
                assert_eq!(out, format!("{progress}{shown}{shown}"), "{ends:?} {size}");
            }
        }
        let mut filter = Filter::new(List::Tools, Box::new(are_few), 0);
        filter.begin(b"text/event-stream");
        assert_eq!(filter.push(b": ping\n\nda", false).unwrap(), b": ping\n\n");
    }

    #[test]
    fn an_answer_without_a_list_passes_as_it_is_and_a_broken_list_does_not() {
        for other in
            [r#"{"error": {"code":1}}"#, r#"{"result":{"prompts" :[1]}}"#, "no JSON", "", r#"{"result":[]}"#]
        {
            assert_eq!(passed(List::Tools, "application/json", other, 5).unwrap(), other);
        }
        for broken in ["{}", "1", "[1]", "[{\"name\":\"a\"},[]]"] {
            let answer = format!(r#"{{"result":{{"tools":{broken}}}}}"#);
            assert_eq!(passed(List::Tools, "application/json", &answer, 5), Err(Unreadable), "{broken}");
        }
        let answer = r#"{"result":{"tools":[{"name":"a","name":"pay"},{"name":1},{}]}}"#;
        assert_eq!(passed(List::Tools, "application/json", answer, 5).unwrap(), r#"{"result":{"tools":[]}}"#);
        let long = " ".repeat(LIST_BYTES_MAX + 1);
        assert_eq!(passed(List::Tools, "application/json", &long, 4096), Err(Unreadable));
        assert_eq!(passed(List::Tools, "text/event-stream", &long, 4096), Err(Unreadable));
        assert!(!Filter::new(List::Tools, Box::new(are_few), 0).begin(b"text/plain"));
    }

    // threat: Huge or costly heads and bodies
    #[test]
    fn no_list_makes_the_gateway_compare_more_than_so_many_items() {
        let list = |items: usize| format!(r#""tools":[{}]"#, vec![r#"{"name":"a"}"#; items].join(","));
        let answer = |lists: &[String]| format!(r#"{{"result":{{{}}}}}"#, lists.join(","));
        let longest = answer(&[list(ITEMS_MAX)]);
        let twice = format!(r#"{{"result":{{{0}}},"result":{{{0}}}}}"#, list(1));
        for (answer, is_read) in [
            (longest, true),
            (answer(&[list(ITEMS_MAX + 1)]), false),
            (answer(&[list(80_000)]), false),
            (answer(&[list(1), list(1)]), false),
            (twice, false),
        ] {
            for (media_type, answer) in
                [("application/json", answer.clone()), ("text/event-stream", format!("data: {answer}\n\n"))]
            {
                let out = passed(List::Tools, media_type, &answer, answer.len());
                let expected = if is_read { Ok(answer) } else { Err(Unreadable) };
                assert!(out == expected, "{media_type}");
            }
        }
    }
}
