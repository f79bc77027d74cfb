//! The signatures of a request that may count, in the order in which they stand there (ERC-8128, section 3.5).

use alloy::primitives::eip191_hash_message;
use sfv::{BareItem, Dictionary, InnerList, Item, ListEntry, Parser};

use crate::domain::freshness::UnixSeconds;
use crate::domain::nonce::{Nonce, NonceClaim};
use crate::domain::signature::SignatureBytes;
use crate::domain::signed_message::{MessageRefusal, SKEW_SECS, SignedMessage};
use crate::http1::fields::Fields;
use crate::message_signature::base::{Components, names};
use crate::message_signature::digest::BodyDigest;
use crate::message_signature::keyid::account;
use crate::message_signature::profile::{
    CANDIDATES_MAX, COMPONENTS_MAX, FIELD_BYTES_MAX, NONCE_BYTES_MAX, PARAMETERS_MAX, Profile,
    SIGNATURE_BYTES_MAX, Terms,
};
use crate::message_signature::{Content, Message, combined, values};

/// Methods whose bodies mean nothing (RFC 9110, section 9.3): where bodies are not seen these need no digest.
const BODILESS: [&str; 3] = ["GET", "HEAD", "DELETE"];

/// The signatures of a request that may count.
#[derive(Debug)]
pub(crate) struct Candidates<M = SignedMessage> {
    /// At least one, in their order.
    pub(crate) messages: Vec<M>,
    /// The refusal of the first of all, if it is none of them. It stands for the request if none of them counts either.
    pub(crate) first_refusal: Option<MessageRefusal>,
}

impl<F: Fields> Message<'_, F> {
    /// True if a field is there, by its name in lower case.
    pub(super) fn has(&self, name: &str) -> bool {
        values(self.fields, name).next().is_some()
    }

    /// True if the request has a body that means something, or may have one.
    pub(super) fn needs_digest(&self) -> bool {
        match self.content {
            Content::Empty => false,
            Content::Follows => true,
            Content::Unseen => !BODILESS.contains(&self.method),
        }
    }

    /// The signatures by these profiles that may count now. `None`: the request has no signature fields.
    pub(crate) fn candidates(
        &self,
        profiles: &[&Profile],
        terms: &Terms,
        now: UnixSeconds,
    ) -> Option<Result<Candidates, MessageRefusal>> {
        self.signatures(profiles, |candidate, components| candidate.judge(components, self, terms, now))
    }

    /// The same, as each is judged.
    pub(super) fn signatures<M>(
        &self,
        profiles: &[&Profile],
        judge: impl Fn(Candidate<'_>, &Components<'_, F>) -> Result<M, MessageRefusal>,
    ) -> Option<Result<Candidates<M>, MessageRefusal>> {
        let fields = ["signature-input", "signature"].map(|name| combined(self.fields, name));
        match &fields {
            [None, None] => None,
            [Some(inputs), Some(signatures)] => Some(self.read([inputs, signatures], profiles, judge)),
            [Some(_), None] | [None, Some(_)] => Some(Err(MessageRefusal::SignatureMissing)),
        }
    }

    fn read<M>(
        &self,
        fields: [&[u8]; 2],
        profiles: &[&Profile],
        judge: impl Fn(Candidate<'_>, &Components<'_, F>) -> Result<M, MessageRefusal>,
    ) -> Result<Candidates<M>, MessageRefusal> {
        if fields.iter().any(|field| field.len() > FIELD_BYTES_MAX) {
            return Err(MessageRefusal::SignatureTooLarge);
        }
        let parse = |field: &[u8]| {
            Parser::new(field).parse::<Dictionary>().map_err(|_| MessageRefusal::SignatureInputInvalid)
        };
        let [inputs, signatures] = fields.map(parse);
        let (inputs, signatures) = (inputs?, signatures?);
        let profile_of = |covered: &InnerList| profiles.iter().find(|profile| profile.takes(covered));
        let tagged: Vec<_> = inputs
            .iter()
            .filter_map(|(label, entry)| {
                let ListEntry::InnerList(covered) = entry else { return None };
                let profile = *profile_of(covered)?;
                Some(Candidate { label: label.as_str(), covered, signature: signatures.get(label), profile })
            })
            .collect();
        if tagged.len() > CANDIDATES_MAX {
            return Err(MessageRefusal::SignatureTooLarge);
        }
        let components = Components::of(self);
        let mut judged = tagged.into_iter().map(|candidate| judge(candidate, &components)).peekable();
        let first_refusal = match judged.peek() {
            None => return Err(MessageRefusal::NoAcceptableSignature),
            Some(first) => first.as_ref().err().copied(),
        };
        let messages: Vec<M> = judged.filter_map(Result::ok).collect();
        match first_refusal {
            Some(refusal) if messages.is_empty() => Err(refusal),
            _ => Ok(Candidates { messages, first_refusal }),
        }
    }

    /// True if `Connection` names a field that is covered.
    fn is_of_one_hop(&self, covered: &InnerList) -> bool {
        let names = || covered.items.iter().filter_map(|item| item.bare_item.as_string());
        let is_named =
            |token: &[u8]| names().any(|name| token.eq_ignore_ascii_case(name.as_str().as_bytes()));
        let tokens = values(self.fields, "connection").flat_map(|line| line.split(|byte| *byte == b','));
        tokens.map(<[u8]>::trim_ascii).any(is_named)
    }

    /// Checks the digest as far as the head tells it.
    fn check_digest(&self) -> Result<(), MessageRefusal> {
        match BodyDigest::of(self.fields).transpose()? {
            Some(digest) if self.content == Content::Empty && !digest.matches() => {
                Err(MessageRefusal::BadContentDigest)
            }
            None if self.needs_digest() => Err(MessageRefusal::ContentDigestRequired),
            Some(_) | None => Ok(()),
        }
    }
}

impl Profile {
    /// True if a signature with these parameters is one of this profile.
    fn takes(&self, covered: &InnerList) -> bool {
        match self.tag {
            Some(tag) => text_of(covered, "tag") == Some(tag),
            None => {
                let keyid = text_of(covered, "keyid").unwrap_or_default();
                let is_ours = keyid.split_once(':').is_some_and(|(namespace, _)| namespace == self.namespace);
                is_ours && !covered.params.contains_key("tag")
            }
        }
    }
}

/// One signature of a profile.
pub(super) struct Candidate<'a> {
    pub(super) label: &'a str,
    pub(super) covered: &'a InnerList,
    signature: Option<&'a ListEntry>,
    profile: &'a Profile,
}

impl<'a> Candidate<'a> {
    /// The signature, and the components that it covers, without those that have parameters.
    pub(super) fn parts<F: Fields>(
        &self,
        message: &Message<'_, F>,
    ) -> Result<(&'a [u8], Vec<&'a str>), MessageRefusal> {
        let covered = self.covered;
        if covered.items.len() > COMPONENTS_MAX || covered.params.len() > PARAMETERS_MAX {
            return Err(MessageRefusal::SignatureTooLarge);
        }
        let signature = match self.signature {
            Some(ListEntry::Item(Item { bare_item: BareItem::ByteSequence(bytes), .. })) => bytes.as_slice(),
            Some(_) | None => return Err(MessageRefusal::SignatureInputInvalid),
        };
        if signature.len() > SIGNATURE_BYTES_MAX {
            return Err(MessageRefusal::SignatureTooLarge);
        }
        let names = names(covered).ok_or(MessageRefusal::SignatureInputInvalid)?;
        // The upstream gets no field that `Connection` names: it would not see what was signed.
        if message.is_of_one_hop(covered) {
            return Err(MessageRefusal::InsufficientCoverage);
        }
        Ok((signature, names))
    }

    fn judge<F: Fields>(
        &self,
        components: &Components<'_, F>,
        message: &Message<'_, F>,
        terms: &Terms,
        now: UnixSeconds,
    ) -> Result<SignedMessage, MessageRefusal> {
        let Self { covered, profile, .. } = self;
        let (signature, names) = self.parts(message)?;
        if covered.params.contains_key("alg") {
            return Err(MessageRefusal::UnsupportedAlgorithm);
        }
        let keyid = text_of(covered, "keyid").ok_or(MessageRefusal::InvalidKeyid)?;
        let account = account(keyid, profile, terms.chain_id)?;
        let signed_at = self.check_time(terms, now)?;
        let nonce = self.nonce()?;
        if !profile.components(message).iter().all(|name| names.contains(name)) {
            return Err(MessageRefusal::InsufficientCoverage);
        }
        message.check_digest()?;
        let nonce = nonce.ok_or(MessageRefusal::NonceRequired)?;
        // No component here has parameters.
        let is_plain = names.len() == covered.items.len();
        let base =
            is_plain.then(|| components.base(covered)).flatten().ok_or(MessageRefusal::BadSignature)?;
        let refusal =
            if signature.len() == 64 { MessageRefusal::Compact } else { MessageRefusal::BadSignature };
        Ok(SignedMessage {
            account,
            digest: eip191_hash_message(base),
            signature: SignatureBytes::of_message(signature).ok_or(refusal)?,
            claim: NonceClaim { nonce: Nonce::of_message(keyid, nonce), signed_at },
        })
    }

    /// When the signature was made, if it is good now.
    pub(super) fn check_time(
        &self,
        terms: &Terms,
        UnixSeconds(now): UnixSeconds,
    ) -> Result<UnixSeconds, MessageRefusal> {
        let seconds = |name: &str| {
            let number = self.covered.params.get(name).and_then(BareItem::as_integer);
            number.and_then(|number| u64::try_from(number).ok()).ok_or(MessageRefusal::InvalidTime)
        };
        let (created, expires) = (seconds("created")?, seconds("expires")?);
        if expires <= created {
            Err(MessageRefusal::InvalidTime)
        } else if now.saturating_add(terms.ahead_secs_max) < created {
            Err(MessageRefusal::RequestNotYetValid)
        } else if now > expires.saturating_add(SKEW_SECS) {
            Err(MessageRefusal::RequestExpired)
        } else if expires - created > terms.validity_secs_max {
            Err(MessageRefusal::RequestValidityTooLong)
        } else {
            Ok(UnixSeconds(created))
        }
    }

    fn nonce(&self) -> Result<Option<&str>, MessageRefusal> {
        match self.covered.params.get("nonce") {
            None => Ok(None),
            Some(BareItem::String(text)) if text.as_str().len() <= NONCE_BYTES_MAX => Ok(Some(text.as_str())),
            Some(_) => Err(MessageRefusal::InvalidNonce),
        }
    }
}

/// A parameter that is a text.
pub(super) fn text_of<'a>(covered: &'a InnerList, name: &str) -> Option<&'a str> {
    covered.params.get(name)?.as_string().map(sfv::StringRef::as_str)
}
