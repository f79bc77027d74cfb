//! HTTP message signatures (RFC 9421) of Ethereum accounts (ERC-8128) and of bots (Web Bot Auth): from a request to what must
//! have been signed, and what an account signs for a request of its own.
//!
//! Everything here is decided by the request and the time alone. Must not know chain, store or answers.

mod candidates;
mod digest;

use alloy::primitives::{Address, B256, eip191_hash_message};
use sfv::{Dictionary, ListEntry, Parser};

use crate::domain::{HostPattern, MessageRefusal, SKEW_SECS, VALIDITY_SECS_MIN};
use crate::http1::Fields;
use crate::message_signature::candidates::Components;

/// A request whose signatures are read.
#[derive(Debug)]
pub(crate) struct Message<'a, F> {
    pub(crate) method: &'a str,
    /// The scheme that the client used; `None`: it is not known.
    pub(crate) scheme: Option<&'a str>,
    /// Host and port, as the client wrote them.
    pub(crate) authority: &'a str,
    /// The hosts that a signature counts for, of all that a client may write; `None`: any, where one is to be made.
    pub(crate) hosts: Option<&'a [HostPattern]>,
    /// Path and query, as they came.
    pub(crate) target: &'a [u8],
    pub(crate) fields: &'a F,
    pub(crate) content: Content,
}

/// A request's body, as far as it is known when its head has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// There is none.
    Empty,
    /// The body follows. One in chunks may turn out to be empty.
    Follows,
    /// Another gateway has it.
    Unseen,
}

/// The values of a field by its name in lower case, in order, without the blanks around them.
fn values<'a>(fields: &'a impl Fields, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
    fields.all().filter(named).map(|(_, value)| value.trim_ascii())
}

/// The lines of a field as one (RFC 9421, section 2.1). `None` if there is none.
fn combined(fields: &impl Fields, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = values(fields, name).collect();
    (!lines.is_empty()).then(|| lines.join(&b", "[..]))
}

/// The longest signature field, its lines together, in bytes.
pub(super) const FIELD_BYTES_MAX: usize = 16 * 1024;

/// The longest signature, in bytes.
pub(super) const SIGNATURE_BYTES_MAX: usize = 8 * 1024;

/// The most signatures of our profiles that one request may have.
pub(super) const CANDIDATES_MAX: usize = 8;

/// The most components that a signature may cover.
pub(super) const COMPONENTS_MAX: usize = 32;

/// The most parameters that a signature may have.
pub(super) const PARAMETERS_MAX: usize = 16;

/// The longest nonce, in bytes.
pub(super) const NONCE_BYTES_MAX: usize = 128;

/// The field that names the agent.
pub(super) const AGENT_ID: &str = "x-agent-id";

/// The digest of the body (RFC 9530).
pub(super) const CONTENT_DIGEST: &str = "content-digest";

/// The field that names a bot's domain: a dictionary, or one text, as bots of 2025 send it.
pub(super) const SIGNATURE_AGENT: &str = "signature-agent";

/// One way to sign requests. The key alone decides the algorithm. Where an account signs, a nonce makes each signature good
/// for one request.
#[derive(Debug)]
pub(crate) struct Profile {
    /// The tag of its signatures; `None`: they have none, and are known by their account's namespace.
    pub(super) tag: Option<&'static str>,
    /// The namespace before chain and address, by which the account is named; empty: a key is, by its thumbprint.
    pub(super) namespace: &'static str,
    /// True if addresses may have capitals.
    pub(super) takes_capitals: bool,
    /// The components that are always covered.
    pub(super) always: &'static [&'static str],
    /// Components that are covered if the request has them.
    pub(super) if_there: &'static [&'static str],
}

/// ERC-8128 as of August 2026.
pub(crate) static ERC_8128: Profile = Profile {
    tag: Some("erc8128"),
    namespace: "eip155",
    takes_capitals: false,
    always: &["@scheme", "@authority", "@method", "@path", "@query", AGENT_ID],
    if_there: &[CONTENT_DIGEST, "content-type"],
};

/// ERC-8128 before it had a tag, which libraries of early 2026 speak. The scheme is not signed.
pub(crate) static ERC_8128_UNTAGGED: Profile = Profile {
    tag: None,
    namespace: "erc8128",
    takes_capitals: true,
    always: &["@authority", "@method", "@path", AGENT_ID],
    if_there: &["@query", CONTENT_DIGEST],
};

/// Web Bot Auth (draft-ietf-webbotauth-httpsig-protocol-01): a key that a domain publishes, for Ed25519. It asks for no nonce.
/// `@authority` or `@target-uri` is covered, and the domain.
pub(crate) static WEB_BOT_AUTH: Profile =
    Profile { tag: Some("web-bot-auth"), namespace: "", takes_capitals: false, always: &[], if_there: &[] };

/// The times of bots' signatures. They know no chain.
pub(crate) const OF_BOTS: Terms =
    Terms { chain_id: 0, validity_secs_max: 24 * 60 * 60, ahead_secs_max: SKEW_SECS };

/// The times that a service accepts, and its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The chain that accounts are on.
    pub(crate) chain_id: u64,
    /// For how many seconds a signature may be good.
    pub(crate) validity_secs_max: u64,
    /// How many seconds ahead a signature's time may lie.
    pub(crate) ahead_secs_max: u64,
}

impl Terms {
    /// The terms where other signatures may be `max_age_secs` old and `max_ahead_secs` ahead, and nonces are kept for
    /// `retention_secs`. A signature is not good for longer than its nonce is kept, nor for times further ahead than the
    /// store expects.
    pub(crate) fn new(
        chain_id: u64,
        (max_age_secs, max_ahead_secs): (u64, u64),
        retention_secs: u64,
    ) -> Self {
        let kept = retention_secs.saturating_sub(max_ahead_secs).saturating_sub(SKEW_SECS);
        Self {
            chain_id,
            validity_secs_max: max_age_secs.max(VALIDITY_SECS_MIN).min(kept),
            ahead_secs_max: max_ahead_secs.min(SKEW_SECS),
        }
    }
}

impl Profile {
    /// The components that a signature over this request has to cover.
    pub(super) fn components<F: Fields>(&self, message: &Message<'_, F>) -> Vec<&'static str> {
        self.listed(message, message.has(CONTENT_DIGEST))
    }

    /// The value of `Accept-Signature` that asks for a signature over this request (RFC 9421, section 5.1).
    pub(crate) fn asked_for<F: Fields>(&self, message: &Message<'_, F>) -> String {
        let has_digest = message.needs_digest() || message.has(CONTENT_DIGEST);
        let components = self.listed(message, has_digest).join("\" \"");
        let tag = self.tag.map(|tag| format!(";tag=\"{tag}\"")).unwrap_or_default();
        format!("request=(\"{components}\");created;expires{tag}")
    }

    fn listed<F: Fields>(&self, message: &Message<'_, F>, has_digest: bool) -> Vec<&'static str> {
        let is_there = |component: &&&str| match **component {
            "@query" => message.target.contains(&b'?'),
            CONTENT_DIGEST => has_digest,
            field => message.has(field),
        };
        self.always.iter().chain(self.if_there.iter().filter(is_there)).copied().collect()
    }
}

/// The longest chain id, in digits (CAIP-2).
const CHAIN_DIGITS_MAX: usize = 32;

/// The address of an account on this chain: a namespace, a chain id and an address, each in the one form that it has.
pub(super) fn account(keyid: &str, profile: &Profile, chain_id: u64) -> Result<Address, MessageRefusal> {
    let parts = || {
        let (chain, address) = keyid.strip_prefix(profile.namespace)?.strip_prefix(':')?.split_once(':')?;
        let is_number = chain.bytes().all(|byte| byte.is_ascii_digit()) && !chain.starts_with('0');
        let is_chain = is_number && (1..=CHAIN_DIGITS_MAX).contains(&chain.len());
        let digits = address.strip_prefix("0x").filter(|digits| digits.len() == 40)?;
        let is_digit =
            |byte: u8| byte.is_ascii_hexdigit() && (profile.takes_capitals || !byte.is_ascii_uppercase());
        let is_address = digits.bytes().all(is_digit);
        Some((chain, address.parse::<Address>().ok()?)).filter(|_| is_chain && is_address)
    };
    let (chain, address) = parts().ok_or(MessageRefusal::InvalidKeyid)?;
    if chain.parse() != Ok(chain_id) {
        return Err(MessageRefusal::UnsupportedChain);
    }
    Ok(address)
}

/// For how long a signature is good, in seconds: each service has to take that.
const VALIDITY_SECS: u64 = 60;

/// The member of both signature fields.
const LABEL: &str = "request";

/// A signature by ERC-8128 that is to be made.
#[derive(Debug)]
pub(crate) struct Unsigned {
    /// The value of `Signature-Input`.
    pub(crate) input: String,
    /// The hash that the account has to sign.
    pub(crate) digest: B256,
}

impl Unsigned {
    /// Over a request, with a nonce of digits and letters, made at `created` in Unix seconds. `None` if it lacks a component.
    pub(crate) fn over<F: Fields>(
        message: &Message<'_, F>,
        (chain_id, account): (u64, Address),
        nonce: &str,
        created: u64,
    ) -> Option<Self> {
        let covered = ERC_8128.components(message).join("\" \"");
        let expires = created.checked_add(VALIDITY_SECS)?;
        let input = format!(
            "{LABEL}=(\"{covered}\");created={created};expires={expires};nonce=\"{nonce}\";\
             keyid=\"eip155:{chain_id}:{account:#x}\";tag=\"erc8128\""
        );
        let members: Dictionary = Parser::new(&input).parse().ok()?;
        let ListEntry::InnerList(covered) = members.get(LABEL)? else { return None };
        let base = Components::of(message).base(covered)?;
        Some(Self { digest: eip191_hash_message(base), input })
    }

    /// The value of `Signature`, of a signature in base64.
    pub(crate) fn signature(&self, base64: &str) -> String {
        format!("{LABEL}=:{base64}:")
    }
}

#[cfg(test)]
mod tests;

pub(crate) use candidates::Candidates;
pub(crate) use digest::BodyDigest;
