//! The calls that a request makes: its message says it, and its headers may not say otherwise. Without the message the headers of the
//! revisions that have some say it.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::domain::Call;
use crate::http1::Fields;
use crate::mcp::message::{Message, Messages};
use crate::mcp::{Problem, listing::List};

/// The first revision whose requests have headers, whose endpoints take POST alone, and which has no sessions. Revisions are dates.
const WITH_HEADERS: &str = "2026-07-28";

/// The last revision that has batches, which clients are of that name none.
const WITH_BATCHES: &str = "2025-03-26";

/// The longest id that is repeated in an error, in bytes.
const ID_BYTES_MAX: usize = 256;

/// The beginning of methods that ask for nothing.
const NOTIFICATIONS: &str = "notifications/";

/// A request of MCP.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct McpRequest<'a> {
    /// The id of its message as it is written; `None` if it has none, or several.
    pub(crate) id: Option<&'a str>,
    /// Everything that it calls. None for an answer.
    pub(crate) calls: Vec<Call<'a>>,
    /// The list that it asks for.
    pub(crate) list: Option<List>,
    /// True if its answer lasts.
    pub(crate) is_stream: bool,
}

impl<'a> McpRequest<'a> {
    /// Reads a request by its message. Error: with the message's id, where that is known.
    pub(crate) fn read(body: &'a [u8], fields: &'a impl Fields) -> Result<Self, (Option<&'a str>, Problem)> {
        check_coding(fields).map_err(|problem| (None, problem))?;
        let messages = Messages::read(body).map_err(|problem| (None, problem))?;
        let only = messages.all.first().filter(|_| !messages.is_batch);
        let id = only.and_then(|message| message.id).filter(|id| is_id(id));
        Self::judge(messages, fields).map(|request| Self { id, ..request }).map_err(|problem| (id, problem))
    }

    fn judge(Messages { all, is_batch }: Messages<'a>, fields: &'a impl Fields) -> Result<Self, Problem> {
        let mirror = Mirror::read(fields)?;
        if is_batch {
            let version = mirror.version.as_deref().unwrap_or(WITH_BATCHES);
            let of_messages = all.iter().filter_map(|message| message.version.as_deref());
            if of_messages.chain([version]).any(|version| version > WITH_BATCHES) || mirror.method.is_some() {
                return Err("this revision has no batches");
            }
            // It is charged as one.
            if all.iter().filter(|message| message.asks()).count() > 1 {
                return Err("a batch of several requests is not taken; send them one by one");
            }
        } else {
            all.iter().try_for_each(|message| check(&mirror, message))?;
        }
        let calls: Result<Vec<_>, Problem> = all.into_iter().filter_map(Message::call).collect();
        let request = Self::of(calls?);
        // Its answer would be a list of answers, which is not read.
        if is_batch && request.list.is_some() {
            return Err("a list is not had in a batch");
        }
        Ok(request)
    }

    /// Reads a request by its headers alone, of a revision that has some.
    pub(crate) fn by_headers(fields: &'a impl Fields) -> Result<Self, Problem> {
        let Mirror { version, method, name } = Mirror::read(fields)?;
        if !version.is_some_and(|version| has_headers(&version)) {
            return Err("this revision has no headers that say what it calls");
        }
        let method = method.ok_or(MISSING)?;
        let name = name.filter(|_| has_name(&method));
        if has_name(&method) && name.is_none() {
            return Err(MISSING);
        }
        Ok(Self::of(vec![Call { method, name }]))
    }

    fn of(calls: Vec<Call<'a>>) -> Self {
        let list = calls.iter().find_map(|call| List::of(&call.method));
        let is_stream = calls.iter().any(|call| call.method == "subscriptions/listen");
        Self { id: None, calls, list, is_stream }
    }
}

/// Refuses a message that a server may read otherwise than as JSON in UTF-8: as a form, which some take one without a content type for, or
/// as UTF-7, in which any key has other bytes.
fn check_coding(fields: &impl Fields) -> Result<(), Problem> {
    let values = |of: &'static [u8]| {
        fields.all().filter(|(name, _)| name.eq_ignore_ascii_case(of)).map(|(_, value)| value)
    };
    if values(b"content-encoding").any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        return Err("its content has a coding");
    }
    let mut content_types = values(b"content-type");
    if !content_types.next().is_some_and(is_json) || content_types.next().is_some() {
        return Err("its content type is not the one that everybody reads as JSON in UTF-8");
    }
    Ok(())
}

/// True for the content type of JSON in UTF-8.
fn is_json(value: &[u8]) -> bool {
    const JSON: &[u8] = b"application/json";
    let parts = value.split_at_checked(JSON.len());
    let Some((_, parameters)) = parts.filter(|(media_type, _)| media_type.eq_ignore_ascii_case(JSON)) else {
        return false;
    };
    if parameters.is_empty() {
        return true;
    }
    let parameters = String::from_utf8_lossy(parameters).to_ascii_lowercase();
    let is_utf_8 = parameters
        .split_once("charset")
        .is_none_or(|(_, charset)| matches!(charset.trim_end(), "=utf-8" | "=\"utf-8\""));
    parameters.trim_start().starts_with(';') && is_utf_8
}

/// True if a request is of a revision whose endpoints take POST alone.
pub(crate) fn takes_post_alone(fields: &impl Fields) -> bool {
    Mirror::read(fields).is_ok_and(|mirror| mirror.version.is_some_and(|version| has_headers(&version)))
}

const DIFFERS: Problem = "a header of MCP differs from the message";

const MISSING: Problem = "a header of MCP is missing";

fn has_headers(version: &str) -> bool {
    version >= WITH_HEADERS
}

/// True for methods of which `Mcp-Name` says the name.
fn has_name(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

/// True for an id that may be repeated: JSON-RPC has texts and numbers.
fn is_id(id: &str) -> bool {
    id.len() <= ID_BYTES_MAX
        && id.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

/// The beginning and the end of a value that is written in Base64.
const MARKER: (&str, &str) = ("=?base64?", "?=");

/// The headers about one message. A header that stands twice has no value that everybody reads alike.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mirror<'a> {
    /// `MCP-Protocol-Version`.
    version: Option<Cow<'a, str>>,
    /// `Mcp-Method`.
    method: Option<Cow<'a, str>>,
    /// `Mcp-Name`.
    name: Option<Cow<'a, str>>,
}

impl<'a> Mirror<'a> {
    fn read(fields: &'a impl Fields) -> Result<Self, Problem> {
        let mut mirror = Self::default();
        for (name, value) in fields.all() {
            let place = match name.len() {
                20 if name.eq_ignore_ascii_case(b"mcp-protocol-version") => &mut mirror.version,
                10 if name.eq_ignore_ascii_case(b"mcp-method") => &mut mirror.method,
                8 if name.eq_ignore_ascii_case(b"mcp-name") => &mut mirror.name,
                _ => continue,
            };
            if place.replace(decoded(value)?).is_some() {
                return Err("a header of MCP stands twice");
            }
        }
        Ok(mirror)
    }
}

fn decoded(value: &[u8]) -> Result<Cow<'_, str>, Problem> {
    const WRONG: Problem = "a header of MCP is neither visible ASCII nor Base64 between markers";
    let text = std::str::from_utf8(value).map_err(|_| WRONG)?;
    if let Some(rest) = text.strip_prefix(MARKER.0) {
        let bytes = rest.strip_suffix(MARKER.1).and_then(|base64| STANDARD.decode(base64).ok());
        return bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(Into::into).ok_or(WRONG);
    }
    let is_visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_visible { Ok(text.into()) } else { Err(WRONG) }
}

impl<'a> Message<'a> {
    /// True if it makes a server work.
    fn asks(&self) -> bool {
        self.method.as_ref().is_some_and(|method| !method.starts_with(NOTIFICATIONS))
    }

    /// The call; `None` for an answer.
    fn call(self) -> Option<Result<Call<'a>, Problem>> {
        let name = self.name().cloned();
        let method = self.method?;
        let is_nameless = name.is_none() && has_name(&method);
        Some(if is_nameless { Err("it names nothing that is called") } else { Ok(Call { method, name }) })
    }

    fn name(&self) -> Option<&Cow<'a, str>> {
        let method = self.method.as_deref().filter(|method| has_name(method))?;
        if method == "resources/read" { self.uri.as_ref() } else { self.name.as_ref() }
    }
}

/// Holds headers to the message: those of its revision have to be there, and none may say otherwise. The revision leaves open which a
/// notification has: some servers take one without its method, and some clients send it so.
fn check(mirror: &Mirror<'_>, message: &Message<'_>) -> Result<(), Problem> {
    let version = message.version.as_ref();
    let is_new = mirror.version.iter().chain(version).any(|version| has_headers(version));
    let triples = [
        (&mirror.version, version, is_new),
        (&mirror.method, message.method.as_ref(), is_new && (message.asks() || message.id.is_some())),
        (&mirror.name, message.name(), is_new),
    ];
    for (header, value, is_needed) in triples {
        match (header, value) {
            (Some(header), Some(value)) if header != value => return Err(DIFFERS),
            (None, Some(_)) if is_needed => return Err(MISSING),
            (_, _) => {}
        }
    }
    // An answer has no method for anybody to go by.
    if mirror.method.is_some() && message.method.is_none() {
        return Err(DIFFERS);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{McpRequest, Mirror, decoded, takes_post_alone};
    use crate::mcp::listing::List;

    const NEW: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
    const CALL: (&str, &str) = ("mcp-method", "tools/call");

    fn call(name: &str, version: &str) -> String {
        let meta = format!(r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}"}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{name}",{meta}}}}}"#)
    }

    fn bare(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    /// Headers with these lines, and with the content type that clients send where the lines name none.
    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = bare(lines);
        headers.entry("content-type").or_insert_with(|| "application/json".parse().unwrap());
        headers
    }

    /// Each call as its method and name.
    fn calls(body: &str, headers: &HeaderMap) -> Option<Vec<(String, Option<String>)>> {
        let request = McpRequest::read(body.as_bytes(), headers).ok()?;
        let calls = request.calls.into_iter();
        Some(calls.map(|call| (call.method.into(), call.name.map(Into::into))).collect())
    }

    // threat: MCP: headers that say another call than the message
    #[test]
    fn headers_of_the_new_revision_are_there_and_say_what_the_message_says() {
        let body = call("search", "2026-07-28");
        let search = Some(vec![("tools/call".to_owned(), Some("search".to_owned()))]);
        for name in ["search", "=?base64?c2VhcmNo?="] {
            assert_eq!(calls(&body, &headers(&[NEW, CALL, ("mcp-name", name)])), search);
        }
        let name = ("mcp-name", "search");
        for wrong in [
            &[][..],
            &[NEW],
            &[NEW, CALL],
            &[NEW, name],
            &[CALL, name],
            &[NEW, CALL, ("mcp-name", "Search")],
            &[NEW, CALL, ("mcp-name", "=?base64?U2VhcmNo?=")],
            &[NEW, ("mcp-method", "TOOLS/CALL"), name],
            &[NEW, ("mcp-method", "tools/list"), name],
            &[NEW, CALL, CALL, name],
            &[NEW, CALL, name, name],
            &[("mcp-protocol-version", "2025-06-18"), CALL, name],
            &[("mcp-protocol-version", "2027-01-01"), CALL, name],
        ] {
            assert_eq!(calls(&body, &headers(wrong)), None, "{wrong:?}");
        }
        let few = headers(&[NEW]);
        let error = McpRequest::read(body.as_bytes(), &few).unwrap_err();
        assert_eq!(error.0, Some("7"));
        // The version in the message alone makes it no older one.
        let unsaid = r#"{"method":"ping","params":{}}"#;
        assert!(calls(unsaid, &headers(&[NEW, ("mcp-method", "ping")])).is_some());
        assert!(calls(unsaid, &headers(&[NEW])).is_none());
    }

    // threat: MCP: headers that say another call than the message
    #[test]
    fn headers_of_a_notification_may_lack_its_method_and_say_no_other() {
        let meta = r#""params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        let notification = format!(r#"{{"method":"notifications/cancelled",{meta}}}"#);
        let method = ("mcp-method", "notifications/cancelled");
        for right in [&[NEW][..], &[NEW, method]] {
            let read = calls(&notification, &headers(right));
            assert_eq!(read, Some(vec![("notifications/cancelled".to_owned(), None)]), "{right:?}");
        }
        for wrong in [&[][..], &[method], &[NEW, CALL], &[NEW, method, method]] {
            assert_eq!(calls(&notification, &headers(wrong)), None, "{wrong:?}");
        }
        // What has an id, or calls without one, is none.
        for other in [r#""id":1,"method":"notifications/cancelled""#, r#""method":"tools/list""#] {
            assert_eq!(calls(&format!("{{{other},{meta}}}"), &headers(&[NEW])), None, "{other}");
        }
    }

    #[test]
    fn the_message_decides_about_older_clients_and_headers_do_not_lie_about_it() {
        for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
            let body = call("search", version);
            let version = ("mcp-protocol-version", version);
            assert!(calls(&body, &headers(&[])).is_some() && calls(&body, &headers(&[version])).is_some());
            assert!(calls(&body, &headers(&[version, CALL, ("mcp-name", "search")])).is_some());
            assert!(calls(&body, &headers(&[version, ("mcp-name", "other")])).is_none());
            assert!(calls(&body, &headers(&[version, ("mcp-method", "ping")])).is_none());
        }
        for nameless in ["tools/call", "prompts/get", "resources/read"] {
            assert!(
                calls(&format!(r#"{{"method":"{nameless}","params":{{"names":1}}}}"#), &headers(&[]))
                    .is_none()
            );
        }
        let answer = r#"{"id":1,"result":{}}"#;
        assert_eq!(calls(answer, &headers(&[])), Some(vec![]));
        assert_eq!(calls(answer, &headers(&[CALL])), None);
    }

    // threat: MCP: several calls in one request
    #[test]
    fn a_batch_is_for_the_revision_that_has_them_and_asks_one_thing() {
        let one = r#"{"method":"notifications/initialized"},{"id":1,"result":{}},{"id":2,"method":"tools/call","params":{"name":"a"}}"#;
        let batch = format!("[{one}]");
        assert_eq!(calls(&batch, &headers(&[])).unwrap().len(), 2);
        assert!(calls(&batch, &headers(&[("mcp-protocol-version", "2025-03-26")])).is_some());
        for version in ["2025-06-18", "2025-11-25", "2026-07-28"] {
            assert!(calls(&batch, &headers(&[("mcp-protocol-version", version)])).is_none());
            assert!(calls(&format!("[{}]", call("a", version)), &headers(&[])).is_none());
        }
        assert!(calls(&format!("[{one},{one}]"), &headers(&[])).is_none());
        assert!(calls(&batch, &headers(&[CALL])).is_none());
        assert!(calls(r#"[{"id":1,"method":"tools/list"}]"#, &headers(&[])).is_none());
    }

    #[test]
    fn without_the_message_headers_of_the_new_revision_alone_decide() {
        let by = |lines: &[_]| {
            let given = headers(lines);
            let call = McpRequest::by_headers(&given).ok()?.calls.into_iter().next()?;
            Some((call.method.into_owned(), call.name.map(|name| name.into_owned())))
        };
        let search = Some(("tools/call".to_owned(), Some("search".to_owned())));
        assert_eq!(by(&[NEW, CALL, ("mcp-name", "search")]), search);
        assert_eq!(by(&[NEW, ("mcp-method", "ping"), ("mcp-name", "x")]), Some(("ping".to_owned(), None)));
        for wrong in [
            &[CALL, ("mcp-name", "search")][..],
            &[("mcp-protocol-version", "2025-11-25"), CALL, ("mcp-name", "search")],
            &[NEW, CALL],
            &[NEW],
            &[NEW, CALL, CALL, ("mcp-name", "search")],
        ] {
            assert_eq!(by(wrong), None, "{wrong:?}");
        }
    }

    // threat: MCP: a tool by another name
    #[test]
    fn a_message_in_another_coding_is_refused() {
        let body = r#"{"method":"ping","+AG0-ethod":"tools/call"}"#;
        let json = "application/json";
        for value in [
            json,
            "application/json ; charset=utf-8",
            "Application/JSON;charset=\"UTF-8\"",
            "application/json;a=b",
        ] {
            assert!(calls(body, &headers(&[("content-type", value)])).is_some(), "{value}");
        }
        for value in [
            "utf-7",
            "utf-16le",
            "\"utf-7\"",
            "utf-8;charset=utf-7",
            "utf-7;charset=utf-8",
            "",
            " utf-8",
            "utf-8x",
        ] {
            let value = format!("application/json; charset={value}");
            assert!(calls(body, &headers(&[("content-type", &value)])).is_none(), "{value}");
        }
        for value in [
            "application/x-www-form-urlencoded",
            "application/form",
            "multipart/form-data; boundary=application/json",
            "text/plain",
            "application/jsonl",
            "application/json, text/plain",
            "application/jso",
            "",
        ] {
            assert!(calls(body, &headers(&[("content-type", value)])).is_none(), "{value}");
        }
        assert!(calls(body, &headers(&[("content-type", json), ("content-type", json)])).is_none());
        assert!(calls(body, &bare(&[])).is_none(), "some servers take it for a form");
        assert!(calls(body, &headers(&[("content-encoding", "gzip")])).is_none());
        assert!(calls(body, &headers(&[("content-encoding", "identity")])).is_some());
    }

    #[test]
    fn a_request_tells_its_id_its_list_and_whether_its_answer_lasts() {
        let none = headers(&[]);
        for (id, repeated) in [
            ("1", Some("1")),
            ("\"a\\u0000\"", Some("\"a\\u0000\"")),
            ("-1.5", Some("-1.5")),
            ("null", None),
            ("{}", None),
            ("[1]", None),
            (&format!("\"{}\"", "a".repeat(300)), None),
        ] {
            let body = format!(r#"{{"id":{id},"method":"tools/list"}}"#);
            let request = McpRequest::read(body.as_bytes(), &none).unwrap();
            assert_eq!((request.id, request.list, request.is_stream), (repeated, Some(List::Tools), false));
        }
        let listens = McpRequest::read(br#"{"id":1,"method":"subscriptions/listen"}"#, &none).unwrap();
        assert!(listens.is_stream && listens.list.is_none());
        assert!(takes_post_alone(&headers(&[NEW])) && !takes_post_alone(&none));
        assert!(!takes_post_alone(&headers(&[("mcp-protocol-version", "2025-11-25")])));
    }

    #[test]
    fn names_have_any_case_and_stand_once() {
        let lines =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "ping"), ("MCP-NAME", "=?base64?w6Q=?=")];
        let given = bare(&lines);
        let mirror = Mirror::read(&given).unwrap();
        let texts = [mirror.version, mirror.method, mirror.name].map(Option::unwrap);
        assert_eq!(texts, ["2026-07-28", "ping", "ä"]);
        assert_eq!(
            Mirror::read(&bare(&[("mcp-param-x", "1"), ("mcp-session-id", "a")])),
            Ok(Mirror::default())
        );
        for (name, value) in lines {
            assert!(Mirror::read(&bare(&[(name, value), (name, value)])).is_err(), "{name}");
        }
    }

    #[test]
    fn a_value_is_visible_ascii_or_base64_between_markers() {
        for (value, text) in [
            ("search", "search"),
            ("file:///a b", "file:///a b"),
            ("=?base64?c2VhcmNo?=", "search"),
            ("=?base64??=", ""),
            ("=?base64?ICA=?=", "  "),
            ("=?base64?PT9iYXNlNjQ/?=", "=?base64?"),
            ("=?BASE64?c2VhcmNo?=", "=?BASE64?c2VhcmNo?="),
            ("", ""),
        ] {
            assert_eq!(decoded(value.as_bytes()).as_deref(), Ok(text), "{value}");
        }
        for wrong in [
            "ä",
            "a\tb",
            "=?base64?c2VhcmNo",
            "=?base64?c2VhcmNo=?=",
            "=?base64?c2Vhcm-_?=",
            "=?base64?/w==?=",
            "=?base64? c2VhcmNo?=",
        ] {
            assert!(decoded(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
