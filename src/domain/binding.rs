//! The chain that a store is for. An agent's number means something on one chain and in one identity registry alone: on
//! another chain its keys would admit a stranger.

use alloy::primitives::Address;

/// How much of a text that a store holds is shown.
const SHOWN_CHARS_MAX: usize = 200;

/// A chain and its identity registry, as the text that stores keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding(String);

/// The store is for another chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "is for {known}, and the configuration is for {configured}; write {instead}, or the chain that it is for"
)]
pub struct OtherChain {
    known: String,
    configured: Binding,
    instead: &'static str,
}

impl Binding {
    /// A chain for development is never the same as one that is not: their ids and addresses may be.
    pub fn new(chain_id: u64, identity: Address, is_for_development: bool) -> Self {
        let kind = if is_for_development { "development chain" } else { "chain" };
        Self(format!("{kind} {chain_id} with identity registry {identity}"))
    }

    /// The text. A change of it makes every store another chain's.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Succeeds for the text of the same chain; `instead` is what to write for a store of its own.
    pub fn check(&self, known: &str, instead: &'static str) -> Result<(), OtherChain> {
        if known == self.0 {
            return Ok(());
        }
        let known = known.escape_debug().take(SHOWN_CHARS_MAX).collect();
        Err(OtherChain { known, configured: self.clone(), instead })
    }
}

impl std::fmt::Display for Binding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::address;

    use super::Binding;

    #[test]
    fn chain_registry_and_development_tell_bindings_apart_and_the_text_stays_as_it_is() {
        let (one, two) = (
            address!("5FbDB2315678afecb367f032d93F642f64180aa3"),
            address!("e7f1725E7734CE288F8367e1Bb143E90bb3F0512"),
        );
        let binding = Binding::new(8004, one, false);
        assert_eq!(
            binding.as_str(),
            "chain 8004 with identity registry 0x5FbDB2315678afecb367f032d93F642f64180aa3"
        );
        binding.check(binding.as_str(), "another").unwrap();
        for other in
            [Binding::new(8005, one, false), Binding::new(8004, two, false), Binding::new(8004, one, true)]
        {
            let said = binding.check(other.as_str(), "another prefix").unwrap_err().to_string();
            let expected =
                format!("is for {other}, and the configuration is for {binding}; write another prefix, ");
            assert!(said.starts_with(&expected), "{said}");
        }
        let absurd = binding.check(&"\n".repeat(10_000), "another").unwrap_err().to_string();
        assert!(absurd.len() < 500 && !absurd.contains('\n'), "{absurd}");
    }
}
