//! What differs from chain to chain, by their ids: the one place in the code that knows any.

use alloy::primitives::{Address, address};

/// A chain, as far as it is known. Where nothing is, all is as on most chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainFacts {
    /// ERC-8004's identity and reputation registry, where its authors deployed them: the same two addresses on all main networks,
    /// and two on all networks for tests.
    pub erc8004: Option<[Address; 2]>,
    /// Multicall3.
    pub multicall: Address,
    /// What can't be had of ERC-8004's registries, for people.
    pub remark: Option<&'static str>,
}

/// The facts of this chain.
#[must_use]
pub const fn facts(chain_id: u64) -> ChainFacts {
    let erc8004 = match chain_id {
        1 | 10 | 56 | 100 | 137 | 143 | 196 | 1_088 | 1_868 | 2_345 | 2_741 | 4_326 | 5_000 | 8_453
        | 42_161 | 42_220 | 43_114 | 59_144 | 167_000 | 534_352 => Some([
            address!("0x8004A169FB4a3325136EB29fA0ceB6D2e539a432"),
            address!("0x8004BAa17C55a88189AE136b182e5fdA19dE9b63"),
        ]),
        84_532 | 11_155_111 => Some([
            address!("0x8004A818BFB912233c491871b3d84c89A494BD9e"),
            address!("0x8004B663056A597Dffe9eCcC1965A193B7388713"),
        ]),
        _ => None,
    };
    let multicall = match chain_id {
        50 => address!("0x0B1795ccA8E4eC4df02346a082df54D437F8D9aF"),
        109 => address!("0x864Bf681ADD6052395188A89101A1B37d3B4C961"),
        324 => address!("0xF9cda624FBC7e059355ce98a31693d299FACd963"),
        1_135 => address!("0xA9d71E1dd7ca26F26e656E66d6AA81ed7f745bf0"),
        2_741 => address!("0xAa4De41dba0Ca5dCBb288b7cC6b708F3aaC759E7"),
        5_031 => address!("0x5e44F178E8cF9B2F5409B6f18ce936aB817C5a11"),
        13_371 => address!("0x236bdA4589e44e6850f5aC6a74BfCa398a86c6c0"),
        50_104 => address!("0x5f4867441d2416cA88B1b3fd38f21811680CD2C8"),
        _ => address!("0xcA11bde05977b3631167028862bE2a173976CA11"),
    };
    let remark = match chain_id {
        324 | 2_741 | 50_104 => Some(
            "Nodes of this chain answer no eth_call without `to`: profiles in the API are 503, and no feedback can give tiers.",
        ),
        _ => None,
    };
    ChainFacts { erc8004, multicall, remark }
}
