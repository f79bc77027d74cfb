//! Terms that an owner may ask of a key, an agent's keys as its stored record holds them, and version 2 of the record's text.
//!
//! Version 1 is the digest of one key, which has no terms; each store keeps it as releases did that know no other. A record of
//! version 2 is nothing that these could take for a key. A key's days stand beside the record.

use std::{fmt, sync::Arc};

use alloy::primitives::{Address, hex};

use crate::domain::{api_key::KeyDigest, endpoint::WebOrigin};

/// The first line of a record of version 2.
pub const VERSION_2: &str = "2\n";

/// Stands for a value that is not there.
const NONE: &str = "-";

/// The seconds of a day.
const DAY_SECS: u64 = 86_400;

/// The days of a key in UTC by the store's clock, each as its number since 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyDays {
    /// On which it was made.
    pub made: u32,
    /// On which it was last brought with a request; `None`: it never was.
    pub used: Option<u32>,
}

/// The day of a moment.
pub fn day_of(unix_secs: u64) -> u32 {
    u32::try_from(unix_secs / DAY_SECS).unwrap_or(u32::MAX)
}

/// The first second of a day.
pub const fn day_begins(day: u32) -> u64 {
    day as u64 * DAY_SECS
}

/// One key of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldKey {
    /// Its digest.
    pub digest: KeyDigest,
    /// From which moment on it is refused, in Unix seconds of the store's clock; `None`: it does not end.
    pub ends: Option<u64>,
    /// Another one has replaced it: it goes on for its grace.
    pub is_replaced: bool,
    /// Its name.
    pub name: Option<KeyName>,
    /// The tenants that it is for; `None`: all, and the API.
    pub tenants: Option<TenantList>,
    /// The account that signed for it, where the record has it.
    pub signer: Option<Address>,
    /// The web origin that was declared with it, where the record has it.
    pub origin: Option<WebOrigin>,
    /// Its days; `None` where a release made it that did not keep them.
    pub days: Option<KeyDays>,
}

impl HeldKey {
    /// A key without terms.
    pub const fn plain(digest: KeyDigest, origin: Option<WebOrigin>, signer: Option<Address>) -> Self {
        let (name, tenants) = (None, None);
        Self { digest, ends: None, is_replaced: false, name, tenants, signer, origin, days: None }
    }

    /// True if version 1 can hold it.
    pub const fn is_plain(&self) -> bool {
        self.ends.is_none() && !self.is_replaced && self.name.is_none() && self.tenants.is_none()
    }

    /// True if it counts at this moment.
    pub fn is_live(&self, now_secs: u64) -> bool {
        self.ends.is_none_or(|ends| now_secs < ends)
    }
}

/// The text of version 2: a line for each key, the oldest first.
pub fn write(keys: &[HeldKey]) -> String {
    let line = |key: &HeldKey| {
        let (digest, ends) = (hex::encode(key.digest.to_bytes()), key.ends.unwrap_or(0));
        let state = if key.is_replaced { 'r' } else { 'c' };
        let (name, tenants) = (word(key.name.as_ref()), word(key.tenants.as_ref()));
        let signer = word(key.signer.map(hex::encode).as_ref());
        let origin = word(key.origin.as_ref().map(WebOrigin::as_str).as_ref());
        format!("{digest} {ends} {state} {name} {tenants} {signer} {origin}\n")
    };
    keys.iter().fold(VERSION_2.to_owned(), |text, key| text + &line(key))
}

/// A value as a word of a line.
pub fn word(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| NONE.to_owned(), ToString::to_string)
}

/// Reads what [`write`] wrote; `None` where it is anything else.
pub fn read(text: &str) -> Option<Vec<HeldKey>> {
    text.strip_prefix(VERSION_2)?.lines().map(read_line).collect()
}

fn read_line(line: &str) -> Option<HeldKey> {
    let mut words = line.split(' ');
    let mut word = || words.next();
    let digest = KeyDigest::from_bytes(hex::FromHex::from_hex(word()?).ok()?);
    let ends = Some(word()?.parse().ok()?).filter(|ends| *ends > 0);
    let is_replaced = match word()? {
        "c" => false,
        "r" => true,
        _ => return None,
    };
    let name = maybe(word()?, |text| KeyName::parse(text).ok())?;
    let tenants = maybe(word()?, |text| TenantList::parse(text.split(',')).ok())?;
    let signer = maybe(word()?, |text| text.parse().ok())?;
    let origin = maybe(word()?, |text| WebOrigin::parse(text).ok())?;
    Some(HeldKey { digest, ends, is_replaced, name, tenants, signer, origin, days: None })
}

/// The value of a word; the outer `None` where it is no such value.
fn maybe<T>(word: &str, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if word == NONE { Some(None) } else { read(word).map(Some) }
}

/// The longest name of a key, in characters.
const NAME_CHARS_MAX: usize = 32;

/// The longest id of a tenant, in characters.
const TENANT_CHARS_MAX: usize = 64;

/// How many tenants a key names at most.
const TENANTS_MAX: usize = 16;

/// For how long a replaced key may go on, in seconds.
pub const GRACE_SECS_MAX: u64 = 3_600;

/// How many keys an agent may have at most, whatever is configured. Those in their grace are not counted.
pub const KEYS_PER_AGENT_MAX: u32 = 32;

/// The name of one of an agent's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyName(Arc<str>);

/// The tenants that a key is for; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantList(Arc<str>);

/// The terms that an owner asks of a key that is to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyTerms {
    /// Its name.
    pub name: Option<KeyName>,
    /// After how many seconds it ends; `None`: it does not.
    pub expires_in_secs: Option<u64>,
    /// The tenants that it is for; `None`: it opens all, and the API.
    pub tenants: Option<TenantList>,
    /// For how many seconds the key that it replaces goes on.
    pub grace_secs: u64,
}

impl KeyName {
    /// Parses a name.
    /// Error: a phrase that says what it should be.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let is_name =
            is_plain(text, NAME_CHARS_MAX) && text.starts_with(|first: char| first.is_ascii_alphanumeric());
        let problem = "is not 1 to 32 of A-Z, a-z, 0-9, '.', '_' and '-', a letter or digit first";
        is_name.then(|| Self(text.into())).ok_or(problem)
    }
}

impl TenantList {
    /// Parses ids of tenants. That there is such a tenant is not asked: files come and go.
    /// Error: a phrase that says what they should be.
    pub fn parse<'a>(ids: impl IntoIterator<Item = &'a str>) -> Result<Self, &'static str> {
        let ids: Vec<&str> = ids.into_iter().collect();
        let are_ids = ids.iter().all(|id| is_tenant_id(id));
        if ids.is_empty() || ids.len() > TENANTS_MAX || !are_ids {
            return Err("is not a list of 1 to 16 ids of tenants");
        }
        Ok(Self(ids.join(",").into()))
    }

    /// The ids.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.split(',')
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for TenantList {
    /// The ids with commas between them.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// True for an id of a tenant. It stands unquoted in labels, logs, headers and stored lines, where "-" is none.
pub fn is_tenant_id(text: &str) -> bool {
    is_plain(text, TENANT_CHARS_MAX) && text != "-"
}

/// True if the text can be a part of a stored line.
fn is_plain(text: &str, chars_max: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=chars_max).contains(&text.len()) && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Address;

    use super::{HeldKey, KeyName, TenantList, read, write};
    use crate::domain::{api_key::KeyDigest, endpoint::WebOrigin};

    /// A change here makes every record unreadable that an earlier release has written.
    #[test]
    fn version_2_stays_as_it_is_and_comes_back_as_it_was() {
        let plain = HeldKey::plain(KeyDigest::from_bytes([0xab; 32]), None, None);
        let whole = HeldKey {
            ends: Some(1_700_000_000),
            is_replaced: true,
            name: Some(KeyName::parse("ci").unwrap()),
            tenants: Some(TenantList::parse(["acme", "other"]).unwrap()),
            signer: Some(Address::repeat_byte(0x51)),
            origin: Some(WebOrigin::parse("https://app.example/hook").unwrap()),
            ..plain.clone()
        };
        assert!(plain.is_plain() && !whole.is_plain());
        let (digest, signer) = ("ab".repeat(32), "51".repeat(20));
        let expected = format!(
            "2\n{digest} 0 c - - - -\n{digest} 1700000000 r ci acme,other {signer} https://app.example\n"
        );
        let keys = [plain, whole];
        assert_eq!(write(&keys), expected);
        assert_eq!(read(&expected).unwrap(), keys);
        for other in ["", "1\n", "2", "https://app.example", "2\n\n", &expected.replace(" c ", " x ")] {
            assert_eq!(read(other), None, "{other:?}");
        }
        assert!(WebOrigin::parse(&expected).is_err(), "former releases take it for no endpoint");
    }

    #[test]
    fn a_key_counts_until_the_second_of_its_end() {
        let ends = |ends| HeldKey { ends, ..HeldKey::plain(KeyDigest::from_bytes([1; 32]), None, None) };
        assert!(ends(Some(10)).is_live(9) && !ends(Some(10)).is_live(10) && ends(None).is_live(u64::MAX));
    }

    #[test]
    fn names_and_ids_are_words_that_can_stand_in_a_stored_line() {
        let longest = "n".repeat(32);
        for name in ["ci", "7", "a.b_c-d", &longest] {
            assert_eq!(KeyName::parse(name).unwrap().to_string(), name);
        }
        for name in ["", "-", "-a", ".a", "a b", "a\n", "é", "a,b", &format!("{longest}n")] {
            assert!(KeyName::parse(name).is_err(), "{name:?}");
        }
        let list = TenantList::parse(["acme", "_other-1", ".x", "-y"]).unwrap();
        assert_eq!((list.to_string().as_str(), list.ids().count()), ("acme,_other-1,.x,-y", 4));
        let many: Vec<&str> = std::iter::repeat_n("acme", 17).collect();
        for ids in [&[][..], &[""], &["-"], &["a,b"], &["a", "b c"], &many] {
            assert!(TenantList::parse(ids.iter().copied()).is_err(), "{ids:?}");
        }
    }
}
