//! `envoy.service.auth.v3.Authorization/Check` as Envoy writes and reads it, by the field numbers of its protobuf files.

use std::net::SocketAddr;

use http::Method;

use crate::rig::authz::{Decision, Dialect, Original, identity_in};
use crate::rig::h2c::{self, Message};
use crate::support::client::Answer;

pub(crate) const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// A call.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    /// The message, without what stands in front of it.
    pub(crate) message: Vec<u8>,
    headers: Vec<(String, String)>,
}

/// One field of a message.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Number(u64),
    Bytes(Vec<u8>),
}

/// A header in an answer, and how it is applied.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) append: Option<bool>,
    pub(crate) append_action: u64,
    pub(crate) keeps_empty: bool,
}

/// An answer, read.
#[derive(Debug, Clone)]
pub(crate) struct Checked {
    /// `status.code`; `None`: there is no status.
    pub(crate) code: Option<u64>,
    /// `denied_response`: status, headers and body.
    pub(crate) denied: Option<(u16, Vec<Applied>, Vec<u8>)>,
    /// `ok_response`: headers for the upstream, names to remove, headers for the client.
    pub(crate) ok: Option<(Vec<Applied>, Vec<String>, Vec<Applied>)>,
    /// `dynamic_metadata`: each value as text.
    pub(crate) metadata: Vec<(String, String)>,
}

pub(crate) fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// A field of bytes, text or a message.
pub(crate) fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn pair(key: &str, value: &[u8]) -> Vec<u8> {
    [bytes(1, key.as_bytes()), bytes(2, value)].concat()
}

impl Check {
    /// Headers of one name are joined by a comma, as Envoy does without `encode_raw_headers`.
    pub(crate) fn of(original: &Original) -> Self {
        let mut joined: Vec<(String, Vec<u8>)> = Vec::new();
        for (name, value) in &original.headers {
            let name = name.to_ascii_lowercase();
            match joined.iter_mut().find(|(other, _)| *other == name) {
                Some((_, all)) => all.extend_from_slice(format!(",{value}").as_bytes()),
                None => joined.push((name, value.clone().into_bytes())),
            }
        }
        let pseudo =
            [(":method", &original.method), (":path", &original.target), (":authority", &original.host)];
        let pseudo = pseudo.map(|(name, value)| (name.to_owned(), value.clone().into_bytes()));
        let headers = joined.iter().chain(&pseudo).flat_map(|(name, value)| bytes(3, &pair(name, value)));
        Self::with(original, headers.collect())
    }

    /// Every header apart, as Envoy does with `encode_raw_headers`.
    pub(crate) fn raw(original: &Original) -> Self {
        let header = |(name, value): &(String, String)| {
            bytes(1, &[bytes(1, name.to_ascii_lowercase().as_bytes()), bytes(3, value.as_bytes())].concat())
        };
        let headers: Vec<u8> = original.headers.iter().flat_map(header).collect();
        Self::with(original, bytes(13, &headers))
    }

    /// A message with these fields of `HttpRequest`.
    pub(crate) fn with(original: &Original, headers: Vec<u8>) -> Self {
        let request = [
            bytes(1, b"7000000000000000001"),
            bytes(2, original.method.as_bytes()),
            headers,
            bytes(4, original.target.as_bytes()),
            bytes(5, original.host.as_bytes()),
            bytes(6, original.scheme.as_bytes()),
            bytes(10, b"HTTP/1.1"),
        ];
        let mut attributes = bytes(4, &bytes(2, &request.concat()));
        if let Some(client) = original.client {
            let port = [varint(3 << 3), varint(51_000)].concat();
            let socket = [bytes(2, client.to_string().as_bytes()), port].concat();
            attributes.extend(bytes(1, &bytes(1, &bytes(1, &socket))));
        }
        if !original.tenant.is_empty() {
            attributes.extend(bytes(10, &pair("tenant", original.tenant.as_bytes())));
        }
        Self { message: bytes(1, &attributes), headers: Vec::new() }
    }

    /// A message of these bytes.
    pub(crate) fn of_bytes(message: Vec<u8>) -> Self {
        Self { message, headers: Vec::new() }
    }

    /// One more header of the call itself.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The body of the call.
    pub(crate) fn framed(&self) -> Vec<u8> {
        let length = u32::try_from(self.message.len()).unwrap().to_be_bytes();
        [&[0], length.as_slice(), &self.message].concat()
    }

    pub(crate) fn call(&self) -> Message {
        self.call_with(&self.framed())
    }

    /// The call with another body.
    pub(crate) fn call_with(&self, body: &[u8]) -> Message {
        let call = call(body);
        self.headers.iter().fold(call, |call, (name, value)| call.with(name, value))
    }

    #[track_caller]
    pub(crate) fn ask(&self, service: SocketAddr) -> Checked {
        Checked::of(&h2c::ask(service, &self.call()).unwrap())
    }
}

/// A call with this body.
pub(crate) fn call(body: &[u8]) -> Message {
    let call = Message::request(Method::POST, "tiergate", CHECK).body(body);
    call.with("content-type", "application/grpc").with("te", "trailers")
}

/// The fields of a message.
pub(crate) fn parts(mut message: &[u8]) -> Vec<(u64, Part)> {
    let mut parts = Vec::new();
    while !message.is_empty() {
        let key = take_varint(&mut message);
        let part = match key & 7 {
            0 => Part::Number(take_varint(&mut message)),
            1 => Part::Number(u64::from_le_bytes(take(&mut message, 8).try_into().unwrap())),
            2 => {
                let length = take_varint(&mut message);
                Part::Bytes(take(&mut message, usize::try_from(length).unwrap()).to_vec())
            }
            other => panic!("a field of type {other}"),
        };
        parts.push((key >> 3, part));
    }
    parts
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = from.split_at(count);
    *from = rest;
    taken
}

fn take_varint(from: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(from, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
    }
    panic!("a number without an end")
}

/// The messages of a field.
fn all(parts: &[(u64, Part)], field: u64) -> Vec<&[u8]> {
    let found = parts.iter().filter(|(number, _)| *number == field);
    found
        .map(|(_, part)| match part {
            Part::Bytes(bytes) => bytes.as_slice(),
            Part::Number(_) => panic!("a number"),
        })
        .collect()
}

fn one(parts: &[(u64, Part)], field: u64) -> Option<&[u8]> {
    let all = all(parts, field);
    assert!(all.len() < 2, "a field that is no list stands twice");
    all.first().copied()
}

fn number(parts: &[(u64, Part)], field: u64) -> u64 {
    parts
        .iter()
        .find(|(number, _)| *number == field)
        .map(|(_, part)| match part {
            Part::Number(number) => *number,
            Part::Bytes(_) => panic!("no number"),
        })
        .unwrap_or_default()
}

fn text(parts: &[(u64, Part)], field: u64) -> String {
    String::from_utf8(one(parts, field).unwrap_or_default().to_vec()).unwrap()
}

fn applied(option: &[u8]) -> Applied {
    let option = parts(option);
    let header = parts(one(&option, 1).unwrap());
    assert_eq!(one(&header, 3), None, "Envoy refuses a header with both values");
    Applied {
        name: text(&header, 1),
        value: text(&header, 2),
        append: one(&option, 2).map(|append| number(&parts(append), 1) == 1),
        append_action: number(&option, 3),
        keeps_empty: number(&option, 4) == 1,
    }
}

impl Checked {
    /// Reads the answer to a call that must have one, with all that no answer may be without.
    #[track_caller]
    pub(crate) fn of(answer: &Message) -> Self {
        let content_type = answer.header("content-type");
        assert_eq!((answer.status, content_type), (200, Some("application/grpc")), "{answer:?}");
        let status = answer.trailers.get("grpc-status").map(|status| status.to_str().unwrap());
        assert_eq!(status, Some("0"), "{answer:?}");
        let (prefix, message) = answer.body.split_at(5);
        assert_eq!((prefix[0], &prefix[1..]), (0, &u32::try_from(message.len()).unwrap().to_be_bytes()[..]));
        let checked = Self::read(message);
        checked.check();
        checked
    }

    fn read(message: &[u8]) -> Self {
        let whole = parts(message);
        let headers = |parts: &[(u64, Part)], field| all(parts, field).into_iter().map(applied).collect();
        let denied = one(&whole, 2).map(|denied| {
            let denied = parts(denied);
            let status = number(&parts(one(&denied, 1).unwrap()), 1);
            let body = one(&denied, 3).unwrap_or_default().to_vec();
            (u16::try_from(status).unwrap(), headers(&denied, 2), body)
        });
        let ok = one(&whole, 3).map(|ok| {
            let ok = parts(ok);
            let removed = all(&ok, 5).into_iter().map(|name| String::from_utf8(name.to_vec()).unwrap());
            (headers(&ok, 2), removed.collect(), headers(&ok, 6))
        });
        let metadata = one(&whole, 4).map(|metadata| {
            let metadata = parts(metadata);
            let fields = all(&metadata, 1).into_iter().map(|entry| {
                let entry = parts(entry);
                let value = parts(one(&entry, 2).unwrap());
                let shown = match &value[..] {
                    [(2, Part::Number(bits))] => f64::from_bits(*bits).to_string(),
                    [(3, Part::Bytes(text))] => String::from_utf8(text.clone()).unwrap(),
                    other => panic!("neither a number nor a text: {other:?}"),
                };
                (text(&entry, 1), shown)
            });
            let mut fields: Vec<_> = fields.collect();
            fields.sort();
            fields
        });
        let code = one(&whole, 1).map(|status| number(&parts(status), 1));
        Self { code, denied, ok, metadata: metadata.unwrap_or_default() }
    }

    /// Checks all that Envoy could misread.
    #[track_caller]
    fn check(&self) {
        let code = self.code.unwrap_or_else(|| panic!("without a status Envoy admits: {self:?}"));
        assert_eq!((self.ok.is_some(), self.denied.is_some()), (code == 0, code != 0), "{self:?}");
        let (ok, denied) = (self.ok.iter(), self.denied.iter());
        let lists =
            ok.flat_map(|(upstream, _, client)| [upstream, client]).chain(denied.map(|denied| &denied.1));
        for list in lists {
            let once = list.iter().filter(|header| header.name != "vary");
            let mut names: Vec<&str> = once.map(|header| header.name.as_str()).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "a header stands twice: {self:?}");
            for header in list {
                // Added to the upstream's, where it answers; set.
                let (append, action) = match header.name.as_str() {
                    "vary" | "cache-control" if self.ok.is_some() => (true, 0),
                    _ => (false, 2),
                };
                let wanted = (Some(append), action, true);
                assert_eq!((header.append, header.append_action, header.keeps_empty), wanted, "{header:?}");
                assert!(!header.name.starts_with(':') && header.name != "host", "{header:?}");
                assert_ne!(header.name, "content-length", "that is Envoy's");
                assert_eq!(header.name, header.name.to_ascii_lowercase());
            }
        }
        if let Some((upstream, removed, _)) = &self.ok {
            let both = upstream.iter().find(|header| removed.contains(&header.name));
            assert!(both.is_none(), "Envoy removes it: {both:?}");
        }
    }

    /// As a gateway reads it.
    #[track_caller]
    pub(crate) fn decision(self) -> Decision {
        let plain = |headers: &[Applied]| -> Vec<(String, String)> {
            headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect()
        };
        let (passes, status, headers, body, identity, stripped) = match (self.ok, self.denied) {
            (Some((upstream, removed, client)), None) => {
                let identity = identity_in(&plain(&upstream));
                assert_eq!(identity.len(), upstream.len(), "the upstream is told nothing else");
                assert_eq!(identity_in(&plain(&client)), [], "the client is not told");
                (true, 200, plain(&client), Vec::new(), identity, removed)
            }
            (None, Some((status, headers, body))) => {
                let identity = identity_in(&plain(&headers));
                (false, status, plain(&headers), body, identity, Vec::new())
            }
            both => panic!("{both:?}"),
        };
        let answer = Answer { status, headers, body };
        let decision = Decision { dialect: Dialect::Grpc, passes, answer, identity, stripped };
        decision.check();
        decision
    }
}
