//! `Content-Digest` (RFC 9530): what a body must hash to, checked while it passes.

use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};
use sha2::{Digest, Sha256, Sha512};

use crate::domain::signed_message::MessageRefusal;
use crate::http1::fields::Fields;
use crate::message_signature::combined;
use crate::message_signature::profile::{CONTENT_DIGEST, FIELD_BYTES_MAX};

/// A body that has to match its digests, of which at least one is known.
#[derive(Debug)]
pub(crate) struct BodyDigest {
    sha256: Option<(Vec<u8>, Sha256)>,
    sha512: Option<(Vec<u8>, Sha512)>,
}

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
        let bytes = |name: &str, length: usize| match members.get(name) {
            None => Some(None),
            Some(ListEntry::Item(Item { bare_item: BareItem::ByteSequence(bytes), .. })) => {
                Some(Some(bytes.clone())).filter(|_| bytes.len() == length)
            }
            Some(_) => None,
        };
        let (sha256, sha512) = (bytes("sha-256", 32)?, bytes("sha-512", 64)?);
        if sha256.is_none() && sha512.is_none() {
            return None;
        }
        Some(Self {
            sha256: sha256.map(|bytes| (bytes, Sha256::new())),
            sha512: sha512.map(|bytes| (bytes, Sha512::new())),
        })
    }

    /// The next bytes of the body.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some((_, hasher)) = &mut self.sha256 {
            hasher.update(bytes);
        }
        if let Some((_, hasher)) = &mut self.sha512 {
            hasher.update(bytes);
        }
    }

    /// The body comes once more, from its beginning.
    pub(crate) fn restart(&mut self) {
        if let Some((_, hasher)) = &mut self.sha256 {
            hasher.reset();
        }
        if let Some((_, hasher)) = &mut self.sha512 {
            hasher.reset();
        }
    }

    /// True if the body, which is over, has all of its digests.
    pub(crate) fn matches(&self) -> bool {
        let sha256 =
            self.sha256.as_ref().is_none_or(|(bytes, hasher)| hasher.clone().finalize()[..] == **bytes);
        let sha512 =
            self.sha512.as_ref().is_none_or(|(bytes, hasher)| hasher.clone().finalize()[..] == **bytes);
        sha256 && sha512
    }
}
