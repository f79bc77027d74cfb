//! Which registries are read, and where they are.

use alloy::primitives::{Address, address};

use super::{MINIMAL, parse};
use crate::domain::{Registries, RegistrySet};

const VAULT: &str = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512";

/// A configuration of a chain with these further lines.
fn on_chain(chain_id: u64, lines: &str) -> String {
    format!("[chain]\nregistries = \"erc8004\"\nchain_id = {chain_id}\n[chain.contracts]\n{lines}")
}

fn registries(text: &str) -> Registries {
    parse(text, &[]).unwrap().fixed.chain.reading.registries
}

#[test]
fn erc8004s_registries_are_where_they_are_known_to_be_on_the_chain() {
    let vault = format!("stake_vault = \"{VAULT}\"\n");
    let main = address!("8004A169FB4a3325136EB29fA0ceB6D2e539a432");
    let test = address!("8004A818BFB912233c491871b3d84c89A494BD9e");
    for (chain_id, identity) in [(1, main), (8_453, main), (11_155_111, test), (84_532, test)] {
        let found = registries(&on_chain(chain_id, &vault));
        assert_eq!((found.identity, found.validation), (identity, None), "{chain_id}");
        assert!(found.reputation.is_some_and(|reputation| reputation != identity));
        assert_eq!(found.set, RegistrySet::Erc8004 { feedback_max: 1_000 });
    }
    let own = format!("{vault}identity = \"{VAULT}\"\nreputation = \"{main}\"\nvalidation = \"{test}\"\n");
    let found = registries(&on_chain(1, &own));
    let vault: Address = VAULT.parse().unwrap();
    assert_eq!((found.identity, found.reputation, found.validation), (vault, Some(main), Some(test)));
}

#[test]
fn multicall3_is_where_it_is_known_to_be_on_the_chain_unless_it_is_written() {
    let vault = format!("stake_vault = \"{VAULT}\"\nidentity = \"{VAULT}\"\n");
    let multicall = |text: &str| parse(text, &[]).unwrap().fixed.chain.reading.multicall;
    for (chain_id, known) in [
        (8_453, address!("cA11bde05977b3631167028862bE2a173976CA11")),
        (31_337, address!("cA11bde05977b3631167028862bE2a173976CA11")),
        (2_741, address!("Aa4De41dba0Ca5dCBb288b7cC6b708F3aaC759E7")),
        (324, address!("F9cda624FBC7e059355ce98a31693d299FACd963")),
    ] {
        let text = on_chain(chain_id, &vault);
        assert_eq!(multicall(&text), known, "{chain_id}");
        let written = text.replace("[chain]\n", &format!("[chain]\nmulticall = \"{VAULT}\"\n"));
        assert_eq!(multicall(&written).to_string(), VAULT, "{chain_id}");
    }
}

#[test]
fn the_documented_registries_are_the_default_wherever_erc8004_is_too() {
    assert_eq!(registries(MINIMAL).set, RegistrySet::Documented { organization: None });
}
