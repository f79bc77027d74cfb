//! The signatures of a request that may count, in the order in which they stand there (ERC-8128, section 3.5).

use std::{cell::OnceCell, collections::HashSet};

use alloy::primitives::eip191_hash_message;
use sfv::{BareItem, Dictionary, FieldType, InnerList, Item, ListEntry, Parser};

use crate::domain::{
    BotSignature, HostPattern, MessageRefusal, Nonce, NonceClaim, SKEW_SECS, SignatureBytes, SignedMessage,
    UnixSeconds, bot::domain_of, host::of_authority,
};
use crate::http1::Fields;
use crate::message_signature::{
    CANDIDATES_MAX, COMPONENTS_MAX, Content, FIELD_BYTES_MAX, Message, NONCE_BYTES_MAX, PARAMETERS_MAX,
    Profile, SIGNATURE_AGENT, SIGNATURE_BYTES_MAX, Terms, WEB_BOT_AUTH, account, combined,
    digest::BodyDigest, values,
};

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

/// The longest `Signature-Agent`, in bytes.
const SIGNATURE_AGENT_BYTES_MAX: usize = 2 * 1024;

/// A request by the names of its components.
pub(super) struct Components<'a, F> {
    message: &'a Message<'a, F>,
    /// The fields' names in lower case and their values, by name; those of one name in their order.
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
        let target = self.message.target;
        let mark = |byte: &u8| *byte == b'?';
        match name {
            "@method" => out.extend_from_slice(self.message.method.as_bytes()),
            "@scheme" => out.extend_from_slice(self.message.scheme?.as_bytes()),
            "@authority" => out.extend_from_slice(&self.authority()?),
            "@path" => out.extend_from_slice(target.split(mark).next()?),
            "@query" => {
                out.push(b'?');
                out.extend_from_slice(target.splitn(2, mark).nth(1).unwrap_or_default());
            }
            "@target-uri" => {
                let parts = [self.message.scheme?.as_bytes(), b"://", &self.authority()?, target];
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

impl<F: Fields> Message<'_, F> {
    /// The signatures that may count now, in their order. `None`: no bot has signed the request.
    pub(crate) fn bot_signatures(&self, terms: &Terms, now: UnixSeconds) -> Option<Vec<BotSignature>> {
        let judge = |candidate: Candidate<'_>, components: &Components<'_, F>| {
            self.judge_bot(&candidate, components, terms, now)
        };
        match self.signatures(&[&WEB_BOT_AUTH], judge)? {
            Err(MessageRefusal::NoAcceptableSignature) => None,
            read => Some(read.map(|candidates| candidates.messages).unwrap_or_default()),
        }
    }

    fn judge_bot(
        &self,
        candidate: &Candidate<'_>,
        components: &Components<'_, F>,
        terms: &Terms,
        now: UnixSeconds,
    ) -> Result<BotSignature, MessageRefusal> {
        let covered = candidate.covered;
        let (signature, names) = candidate.parts(self)?;
        if covered.params.contains_key("alg") && text_of(covered, "alg") != Some("ed25519") {
            return Err(MessageRefusal::UnsupportedAlgorithm);
        }
        let key_id = text_of(covered, "keyid").ok_or(MessageRefusal::InvalidKeyid)?.into();
        candidate.check_time(terms, now)?;
        if !names.iter().any(|name| ["@authority", "@target-uri"].contains(name)) {
            return Err(MessageRefusal::InsufficientCoverage);
        }
        let domain = domain(candidate, components, &names).ok_or(MessageRefusal::InsufficientCoverage)?;
        let base = components.base(covered).ok_or(MessageRefusal::BadSignature)?;
        Ok(BotSignature { domain, key_id, base, signature: signature.into() })
    }
}

/// The domain that a signature covers: of several the one under its own label.
fn domain<F: Fields>(
    candidate: &Candidate<'_>,
    components: &Components<'_, F>,
    names: &[&str],
) -> Option<Box<str>> {
    let is_agent =
        |item: &&Item| item.bare_item.as_string().is_some_and(|name| name.as_str() == SIGNATURE_AGENT);
    let keys: Vec<&str> = candidate.covered.items.iter().filter(is_agent).filter_map(member_of).collect();
    let key = match keys.as_slice() {
        [] if names.contains(&SIGNATURE_AGENT) => None,
        [only] => Some(*only),
        several => Some(*several.iter().find(|key| **key == candidate.label)?),
    };
    let item = components.signature_agent(key)?;
    let is_directory = item
        .params
        .get("type")
        .is_none_or(|kind| kind.as_token().is_some_and(|kind| kind.as_str() == "directory"));
    domain_of(item.bare_item.as_string().filter(|_| is_directory)?.as_str())
}
