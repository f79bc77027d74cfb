//! The ten accounts of the mnemonic "test test test test test test test test test test test junk".
//!
//! Publicly known, and therefore worthless on any real chain: whatever is sent to them there is taken at once.
//! They are the accounts that development nodes unlock by custom.

use std::sync::LazyLock;

use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;

/// A public test account.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleAccount {
    pub(crate) address: Address,
    /// The private key, as 0x and 64 hex digits.
    pub(crate) key: &'static str,
}

/// The sample accounts, in the order of their derivation path.
pub(crate) static SAMPLE_ACCOUNTS: LazyLock<[SampleAccount; 10]> = LazyLock::new(|| {
    KEYS.map(|key| {
        let signer = key.parse().map(|signer: PrivateKeySigner| signer.address());
        SampleAccount { address: signer.unwrap_or_default(), key }
    })
});

const KEYS: [&str; 10] = [
    "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
    "0x8b3a350cf5c34c9194ca85829a2df0ec3153be0318b5e2d3348e872092edffba",
    "0x92db14e403b83dfe3df233f83dfa3a0d7096f21ca9b0d6d6b8d88b2b4ec1564e",
    "0x4bbbf85ce3377467afe5d46f804f221813b2bb87f24d81f60f1fcdbf7cbf4356",
    "0xdbda1821b80551c9d65939329250298aa3472ba22feea921c0cf5d620ea67b97",
    "0x2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6",
];

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, address};

    use super::SAMPLE_ACCOUNTS;

    #[test]
    fn the_accounts_are_those_that_development_nodes_unlock() {
        let first = address!("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
        let last = address!("0xa0Ee7A142d267C1f36714E4a8F75612F20a79720");
        assert_eq!([0, 9].map(|at| SAMPLE_ACCOUNTS[at].address), [first, last]);
        assert!(SAMPLE_ACCOUNTS.iter().all(|account| account.address != Address::ZERO));
    }
}
