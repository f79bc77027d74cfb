//! Signed assertions about admitted agents, for upstreams that check them instead of believing their network: a JWT
//! (RFC 7519) in compact form, signed with ES256.
//!
//! Made from a [`Permit`] alone. An assertion says nothing of the request that carries it: it is used again while it is
//! young and true.

use std::sync::Arc;

use alloy::primitives::Address;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quick_cache::sync::{Cache, EntryAction, EntryResult};
use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::{AgentId, Tier};
use crate::pipeline::permit::Permit;
use crate::ports::{Clock, Entropy, NoEntropy};
use crate::tls::{PublicKey, SigningKeys};

/// How long an assertion is good for, in seconds.
const LIFE_SECS: u64 = 60;

/// For how long the same one is written, in seconds.
const USE_SECS: u64 = 30;

/// How many pairs of agent and tenant have their last assertion kept.
const KEPT_MAX: usize = 16_384;

/// The key set where nobody signs.
pub(crate) const NO_KEYS: &str = r#"{"keys":[]}"#;

/// Chain and registry, which each assertion names, and the sources of its time and its random id.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) chain_id: u64,
    /// The identity registry.
    pub(crate) registry: Address,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
}

/// The signer of assertions. It has no `Debug`: there are private keys in it.
pub(crate) struct Issuer {
    name: Box<str>,
    keys: Arc<SigningKeys>,
    /// The header of every assertion as it stands there.
    header: String,
    /// The public keys, as a JWK Set (RFC 7517).
    pub(crate) key_set: String,
    registry: String,
    facts: Facts,
    signed: Cache<(AgentId, Arc<str>), Signed>,
}

/// An assertion, and what it says of whom.
#[derive(Clone)]
struct Signed {
    subject: Subject,
    /// In Unix seconds.
    issued: u64,
    text: Arc<str>,
}

/// An agent, as an assertion names it.
#[derive(Clone, Copy, PartialEq)]
struct Subject {
    agent: AgentId,
    owner: Address,
    tier: Tier,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: String,
    owner: String,
    tier: u8,
    chain: u64,
    registry: &'a str,
    iat: u64,
    exp: u64,
    jti: String,
}

impl Issuer {
    /// An issuer with this name and these keys.
    pub(crate) fn new(name: &str, keys: Arc<SigningKeys>, facts: Facts) -> Self {
        let kid = keys.published.first().map(|key| &key.kid);
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": kid }).to_string();
        let key_set = json!({ "keys": keys.published.iter().map(jwk).collect::<Vec<_>>() }).to_string();
        Self {
            name: name.into(),
            header: URL_SAFE_NO_PAD.encode(header),
            key_set,
            registry: facts.registry.to_checksum(None),
            keys,
            facts,
            signed: Cache::new(KEPT_MAX),
        }
    }

    /// True if it has this name and these keys.
    pub(crate) fn is(&self, name: &str, keys: &SigningKeys) -> bool {
        *self.name == *name && self.keys.published == keys.published
    }

    /// The assertion for this tenant about an admitted agent.
    pub(crate) fn assertion(&self, permit: &Permit, tenant: &Arc<str>) -> Result<Arc<str>, NoEntropy> {
        let (agent, owner, tier) = (permit.agent(), permit.profile().holders.owner, permit.tier());
        self.about(Subject { agent, owner, tier }, tenant)
    }

    /// The last one while it is young and true. Of all who find none, one signs and the others wait for that.
    fn about(&self, subject: Subject, tenant: &Arc<str>) -> Result<Arc<str>, NoEntropy> {
        // The time is asked for after each look: what another one has signed meanwhile is not of the future.
        let holds = |known: &Signed| known.holds(subject, self.facts.clock.unix_seconds());
        let key = (subject.agent, Arc::clone(tenant));
        if let Some(known) = self.signed.get(&key).filter(holds) {
            return Ok(known.text);
        }
        let found = self.signed.entry(&key, None, |_, known| {
            if holds(known) {
                EntryAction::Retain(Arc::clone(&known.text))
            } else {
                EntryAction::ReplaceWithGuard
            }
        });
        let place = match found {
            EntryResult::Retained(text) => return Ok(text),
            EntryResult::Vacant(place) | EntryResult::Replaced(place, _) => place,
            // Neither is asked for.
            EntryResult::Removed(..) | EntryResult::Timeout => return Ok(self.sign(subject, tenant)?.text),
        };
        let signed = self.sign(subject, tenant)?;
        // It is used all the same if it can't be kept.
        let _ = place.insert(signed.clone());
        Ok(signed.text)
    }

    fn sign(&self, subject: Subject, tenant: &str) -> Result<Signed, NoEntropy> {
        let issued = self.facts.clock.unix_seconds();
        let claims = Claims {
            iss: &self.name,
            aud: tenant,
            sub: subject.agent.to_string(),
            owner: subject.owner.to_checksum(None),
            tier: subject.tier.number(),
            chain: self.facts.chain_id,
            registry: &self.registry,
            iat: issued,
            exp: issued.saturating_add(LIFE_SECS),
            jti: URL_SAFE_NO_PAD.encode(self.facts.entropy.key_bytes()?),
        };
        let claims = serde_json::to_vec(&claims).map_err(|_| NoEntropy)?;
        let mut text = format!("{}.{}", self.header, URL_SAFE_NO_PAD.encode(claims));
        let signature = self.keys.sign(text.as_bytes()).ok_or(NoEntropy)?;
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut text);
        Ok(Signed { subject, issued, text: text.into() })
    }
}

impl Signed {
    /// A clock that was set back makes it one of the future, which upstreams refuse.
    fn holds(&self, subject: Subject, now: u64) -> bool {
        self.subject == subject && now.checked_sub(self.issued).is_some_and(|age| age < USE_SECS)
    }
}

fn jwk(key: &PublicKey) -> Value {
    let PublicKey { kid, x, y } = key;
    json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "use": "sig", "alg": "ES256", "kid": kid })
}

#[cfg(test)]
mod tests;
