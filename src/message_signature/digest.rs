//! `Content-Digest` (RFC 9530): what a body must hash to, checked while it passes.

use std::fmt;

use ring::digest::{Algorithm, Context, SHA256, SHA512};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

use crate::domain::MessageRefusal;
use crate::http1::Fields;
use crate::message_signature::{CONTENT_DIGEST, FIELD_BYTES_MAX, combined};

/// A body that has to match its digests, of which at least one is known: the bytes of each, and its hasher.
pub(crate) struct BodyDigest([Option<(Vec<u8>, Context)>; 2]);

impl BodyDigest {
    /// The digests that a request announces; `None` if it announces none.
    /// Error: they can't be read, or none of them is known here. Other algorithms are passed over.
    pub(crate) fn of(fields: &impl Fields) -> Option<Result<Self, MessageRefusal>> {
        let text = combined(fields, CONTENT_DIGEST)?;
        Some(Self::parse(&text).ok_or(MessageRefusal::BadContentDigest))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let members = Some(text).filter(|text| text.len() <= FIELD_BYTES_MAX)?;
        let members: Dictionary = Parser::new(members).parse().ok()?;
        // The outer `None`: it is not a digest of this algorithm.
        let digest = |name: &str, algorithm: &'static Algorithm| match members.get(name) {
            None => Some(None),
            Some(ListEntry::Item(Item { bare_item: BareItem::ByteSequence(bytes), .. })) => {
                let is_whole = bytes.len() == algorithm.output_len();
                is_whole.then(|| Some((bytes.clone(), Context::new(algorithm))))
            }
            Some(_) => None,
        };
        let digests = [digest("sha-256", &SHA256)?, digest("sha-512", &SHA512)?];
        digests.iter().any(Option::is_some).then_some(Self(digests))
    }

    /// The next bytes of the body.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.iter_mut().flatten().for_each(|(_, hasher)| hasher.update(bytes));
    }

    /// The body comes once more, from its beginning.
    pub(crate) fn restart(&mut self) {
        self.0.iter_mut().flatten().for_each(|(_, hasher)| *hasher = Context::new(hasher.algorithm()));
    }

    /// True if the body, which is over, has all of its digests.
    pub(crate) fn matches(&self) -> bool {
        self.0.iter().flatten().all(|(bytes, hasher)| hasher.clone().finish().as_ref() == bytes)
    }
}

impl fmt::Debug for BodyDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("BodyDigest(…)")
    }
}
