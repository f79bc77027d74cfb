//! The stake vault, where the stake gives agents their tiers. Also the token that it takes, where it names it, and its decimals,
//! which no read of an agent needs.

use alloy::primitives::{Address, U256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolValue};

use crate::chain::answer::{Call3, Result3};
use crate::chain::fault::ReadError;
use crate::chain::registries::results::{call, decode};
use crate::domain::agent_id::AgentId;
use crate::domain::registries::Registries;

sol! {
    /// Only the first word counts.
    function getStake(uint256 agentId) external view returns (uint256 amount);
    event Staked(uint256 indexed agentId, address indexed staker, uint256 amount);
    event Unstaked(uint256 indexed agentId, address indexed staker, uint256 amount);

    /// Names by which vaults tell their token. The last one is ERC-4626's.
    function token() external view returns (address);
    function stakingToken() external view returns (address);
    function stakeToken() external view returns (address);
    function asset() external view returns (address);

    /// ERC-20.
    function decimals() external view returns (uint8);
}

/// The call for an agent's stake.
pub(super) fn stake_call(vault: Address, agent: AgentId) -> Call3 {
    call(vault, getStakeCall { agentId: agent.token_id() }.abi_encode())
}

/// The stake in the result of [`stake_call`]; none where there is no vault.
pub(super) fn read_stake(
    on: &Registries,
    results: &mut impl Iterator<Item = Result3>,
) -> Result<Option<U256>, ReadError> {
    let read = |_| decode::<getStakeCall>("chain.contracts.stake_vault", results);
    on.stake_vault.map(read).transpose()
}

/// The calls for a vault's token.
pub(in crate::chain) fn token_calls(vault: Address) -> Vec<Call3> {
    let calls = [
        tokenCall {}.abi_encode(),
        stakingTokenCall {}.abi_encode(),
        stakeTokenCall {}.abi_encode(),
        assetCall {}.abi_encode(),
    ];
    calls.map(|data| call(vault, data)).into()
}

/// The token in the results of [`token_calls`].
pub(in crate::chain) fn read_token(results: &[Result3]) -> Option<Address> {
    let tokens = results.iter().filter_map(word).map(|word| Address::from_word(word.into()));
    tokens.into_iter().find(|token| !token.is_zero())
}

/// The call for a token's decimals.
pub(in crate::chain) fn decimals_call(token: Address) -> Call3 {
    call(token, decimalsCall {}.abi_encode())
}

/// The decimals in the result of [`decimals_call`].
pub(in crate::chain) fn read_decimals(result: &Result3) -> Option<u8> {
    word(result)?.try_into().ok()
}

fn word(result: &Result3) -> Option<U256> {
    result.success.then(|| U256::abi_decode(&result.returnData).ok()).flatten()
}
