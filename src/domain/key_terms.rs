//! Terms of a key that its owner may ask for: a name, an end, and the tenants that it is for.

use std::fmt;
use std::sync::Arc;

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
    use super::{KeyName, TenantList};

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
