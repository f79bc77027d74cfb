//! Header fields as rules read them, whether they are spans of a head's bytes or the HTTP library's map.

use std::ops::{Deref, Range};

use http::HeaderMap;

use crate::http1::name::Name;

/// The reason why a head is refused, as a phrase.
pub(crate) type Problem = &'static str;

/// The most fields of a head.
pub(crate) const FIELDS_MAX: usize = 128;

/// The reason for which a head of more than [`FIELDS_MAX`] fields is refused.
pub(crate) const TOO_MANY_FIELDS: Problem = "there are more than 128 headers";

/// Header fields of one message, in order.
pub(crate) trait Fields {
    /// The values of a known name, in order, without the blanks around them.
    fn values(&self, name: Name) -> impl DoubleEndedIterator<Item = &[u8]>;

    /// The names, as they were written, and values.
    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// How many fields there are.
    fn count(&self) -> usize;

    /// True if a known name is there.
    fn has(&self, name: Name) -> bool {
        self.values(name).next().is_some()
    }

    /// True if a WebSocket is asked for. Whoever names another protocol goes on in HTTP (RFC 9110, section 7.8).
    fn upgrades(&self) -> bool {
        self.values(Name::Upgrade).any(is_websocket)
    }

    /// True if the client may wait for an interim answer before it sends its body (RFC 9110, section 10.1.1).
    fn expects_continue(&self) -> bool {
        self.values(Name::Expect).any(|expectation| expectation.eq_ignore_ascii_case(b"100-continue"))
    }

    /// The value of a known name that is there once.
    fn only(&self, name: Name) -> Option<&[u8]> {
        let mut values = self.values(name);
        values.next().filter(|_| values.next().is_none())
    }
}

/// True if an `Upgrade` header names the only protocol that is ever switched to.
pub(super) fn is_websocket(protocols: &[u8]) -> bool {
    let mut protocols = protocols.split(|byte| *byte == b',');
    protocols.any(|protocol| protocol.trim_ascii().eq_ignore_ascii_case(b"websocket"))
}

/// One field of a head, as spans of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) id: Name,
    pub(crate) name: Range<usize>,
    /// The span of its value, without the blanks around it.
    pub(crate) value: Range<usize>,
}

/// The fields of a head, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spans {
    list: Vec<Span>,
    /// A bit for each name that is there: most names that are looked for are not.
    names: u32,
}

const _: () = assert!(Name::KNOWN.len() < u32::BITS as usize);

impl Spans {
    /// Empties it, and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.names = 0;
    }

    pub(super) fn push(&mut self, span: Span) -> Result<(), Problem> {
        if self.list.len() == FIELDS_MAX {
            return Err(TOO_MANY_FIELDS);
        }
        self.names |= 1 << span.id as u32;
        self.list.push(span);
        Ok(())
    }

    /// The spans of this name, and maybe of others.
    fn near(&self, name: Name) -> &[Span] {
        if self.names >> name as u32 & 1 == 1 { &self.list } else { &[] }
    }
}

impl Deref for Spans {
    type Target = [Span];

    fn deref(&self) -> &[Span] {
        &self.list
    }
}

/// The fields of a head as spans of its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpanFields<'a> {
    /// The head's bytes.
    pub(crate) head: &'a [u8],
    pub(crate) spans: &'a Spans,
}

impl Fields for SpanFields<'_> {
    fn values(&self, name: Name) -> impl DoubleEndedIterator<Item = &[u8]> {
        let spans = self.spans.near(name).iter().filter(move |span| span.id == name);
        spans.map(|span| self.head.get(span.value.clone()).unwrap_or_default())
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let text = |range: &Range<usize>| self.head.get(range.clone()).unwrap_or_default();
        self.spans.iter().map(move |span| (text(&span.name), text(&span.value)))
    }

    fn count(&self) -> usize {
        self.spans.len()
    }
}

impl Fields for HeaderMap {
    fn values(&self, name: Name) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.get_all(name.as_str()).iter().map(|value| value.as_bytes().trim_ascii())
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
    }

    fn count(&self) -> usize {
        self.len()
    }
}

/// The most options of a head, empty ones too. More would make each header of a head cost more than its bytes.
pub(crate) const OPTIONS_MAX: usize = 9;

const TOO_MANY: Problem = "Connection holds more than 9 options";

/// The options of a head, without the blanks around them. Some may be empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Options<'a> {
    list: [&'a [u8]; OPTIONS_MAX],
    count: usize,
}

impl<'a> Options<'a> {
    /// Reads the options of a head.
    pub(crate) fn of(fields: &'a impl Fields) -> Result<Self, Problem> {
        let mut options = Self::default();
        fields.values(Name::Connection).try_for_each(|line| options.add(line))?;
        Ok(options)
    }

    /// Adds the options of one line.
    pub(crate) fn add(&mut self, line: &'a [u8]) -> Result<(), Problem> {
        for option in line.split(|byte| *byte == b',') {
            *self.list.get_mut(self.count).ok_or(TOO_MANY)? = option.trim_ascii();
            self.count += 1;
        }
        Ok(())
    }

    /// The options, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.list.iter().take(self.count).copied()
    }

    /// True if one of them names this header, in any case.
    pub(crate) fn name(&self, header: &[u8]) -> bool {
        self.iter().any(|option| option.eq_ignore_ascii_case(header))
    }
}
