//! The signatures of bots (draft-ietf-webbotauth-httpsig-protocol-01): each names a domain, and a key that it publishes.

use sfv::Item;

use crate::domain::bot::{BotSignature, domain_of};
use crate::domain::freshness::UnixSeconds;
use crate::domain::signed_message::MessageRefusal;
use crate::http1::fields::Fields;
use crate::message_signature::Message;
use crate::message_signature::base::{Components, member_of};
use crate::message_signature::candidates::{Candidate, text_of};
use crate::message_signature::profile::{SIGNATURE_AGENT, Terms, WEB_BOT_AUTH};

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
