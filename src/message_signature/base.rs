//! The signature base: the bytes that stand for a request (RFC 9421, section 2.5).
//!
//! Fields are looked up in an index that is made once: however many signatures a request has, its head is read once.

use std::cell::OnceCell;
use std::collections::HashSet;

use sfv::{BareItem, Dictionary, FieldType, InnerList, Item, ListEntry, Parser};

use crate::domain::host::{HostPattern, of_authority};
use crate::http1::fields::Fields;
use crate::message_signature::profile::SIGNATURE_AGENT;
use crate::message_signature::{Message, combined};

/// The longest `Signature-Agent`, in bytes.
const SIGNATURE_AGENT_BYTES_MAX: usize = 2 * 1024;

/// A request by the names of its components.
pub(super) struct Components<'a, F> {
    message: &'a Message<'a, F>,
    /// Each field's name in lower case and its value, by name; those of one name in their order.
    fields: Vec<(Vec<u8>, &'a [u8])>,
    /// `Signature-Agent` as a dictionary, and as one text, once somebody asks.
    agents: OnceCell<(Option<Dictionary>, Option<Item>)>,
}

impl<'a, F: Fields> Components<'a, F> {
    pub(super) fn of(message: &'a Message<'a, F>) -> Self {
        let named = |(name, value): (&[u8], &'a [u8])| (name.to_ascii_lowercase(), value.trim_ascii());
        let mut fields: Vec<_> = message.fields.all().map(named).collect();
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        Self { message, fields, agents: OnceCell::new() }
    }

    /// The base of a signature over these components with these parameters. `None` if the request lacks one of them, or
    /// has it in a form that is not read here.
    pub(super) fn base(&self, covered: &InnerList) -> Option<Vec<u8>> {
        let mut base = Vec::with_capacity(512);
        for item in &covered.items {
            let name = item.bare_item.as_string()?.as_str();
            base.extend_from_slice(item.serialize().as_bytes());
            base.extend_from_slice(b": ");
            match member_of(item) {
                _ if item.params.is_empty() => self.write(name, &mut base)?,
                Some(key) if name == SIGNATURE_AGENT => {
                    base.extend_from_slice(self.signature_agent(Some(key))?.serialize().as_bytes());
                }
                Some(_) | None => return None,
            }
            base.push(b'\n');
        }
        base.extend_from_slice(b"\"@signature-params\": ");
        let parameters = vec![ListEntry::InnerList(covered.clone())].serialize()?;
        base.extend_from_slice(parameters.as_bytes());
        Some(base)
    }

    /// Writes the value of a component.
    fn write(&self, name: &str, out: &mut Vec<u8>) -> Option<()> {
        let (path, query) = self.path_and_query();
        match name {
            "@method" => out.extend_from_slice(self.message.method.as_bytes()),
            "@scheme" => out.extend_from_slice(self.message.scheme?.as_bytes()),
            "@authority" => out.extend_from_slice(&self.authority()?),
            "@path" => out.extend_from_slice(path),
            "@query" => {
                out.push(b'?');
                out.extend_from_slice(query.unwrap_or_default());
            }
            "@target-uri" => {
                let parts =
                    [self.message.scheme?.as_bytes(), b"://", &self.authority()?, self.message.target];
                parts.iter().for_each(|part| out.extend_from_slice(part));
            }
            _ => {
                let begin = self.fields.partition_point(|(other, _)| other.as_slice() < name.as_bytes());
                let lines =
                    self.fields.get(begin..)?.iter().take_while(|(other, _)| other == name.as_bytes());
                let lines: Vec<&[u8]> = lines.map(|(_, value)| *value).collect();
                out.extend_from_slice(&(!lines.is_empty()).then(|| lines.join(&b", "[..]))?);
            }
        }
        Some(())
    }

    fn path_and_query(&self) -> (&[u8], Option<&[u8]>) {
        let target = self.message.target;
        match target.iter().position(|byte| *byte == b'?') {
            Some(mark) => (target.get(..mark).unwrap_or_default(), target.get(mark + 1..)),
            None => (target, None),
        }
    }

    /// Host and port in normal form: small letters, and no port that is the scheme's own (RFC 9421, section 2.2.3). `None` if no
    /// signature counts for that host.
    fn authority(&self) -> Option<Vec<u8>> {
        if let Some(hosts) = self.message.hosts {
            let host = HostPattern::Exact(of_authority(self.message.authority)?.into());
            hosts.iter().find(|named| named.covers(&host))?;
        }
        let authority = self.message.authority.to_ascii_lowercase();
        let own_port = match self.message.scheme {
            Some("https") => ":443",
            Some("http") => ":80",
            Some(_) | None => "",
        };
        Some(authority.strip_suffix(own_port).unwrap_or(&authority).into())
    }

    /// The member of `Signature-Agent` with this key, or the one text that it is. However many ask, the field is read once.
    pub(super) fn signature_agent(&self, key: Option<&str>) -> Option<&Item> {
        let (members, text) = self.agents.get_or_init(|| {
            let field = combined(self.message.fields, SIGNATURE_AGENT).unwrap_or_default();
            let field =
                field.get(..).filter(|field| field.len() <= SIGNATURE_AGENT_BYTES_MAX).unwrap_or_default();
            (Parser::new(field).parse().ok(), Parser::new(field).parse().ok())
        });
        let Some(key) = key else { return text.as_ref() };
        match members.as_ref()?.get(key)? {
            ListEntry::Item(item) => Some(item),
            ListEntry::InnerList(_) => None,
        }
    }
}

/// The key of the dictionary's member that a component is (RFC 9421, section 2.1.2).
pub(super) fn member_of(item: &Item) -> Option<&str> {
    let key = item.params.get("key").filter(|_| item.params.len() == 1)?;
    key.as_string().map(sfv::StringRef::as_str)
}

/// The names of the components, without those that have parameters. `None` if something stands there that is no
/// component, or twice.
pub(super) fn names(covered: &InnerList) -> Option<Vec<&str>> {
    let mut seen = HashSet::new();
    let mut names = Vec::with_capacity(covered.items.len());
    for item in &covered.items {
        let BareItem::String(name) = &item.bare_item else { return None };
        let is_new = seen.insert(item.serialize());
        if !is_new {
            return None;
        }
        if item.params.is_empty() {
            names.push(name.as_str());
        }
    }
    Some(names)
}
