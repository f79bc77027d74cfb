//! Numbers on the chain, besides stakes, that give agents their tiers: per kind of question its call, the number in the
//! result, and whom the logs of its contract concern. Knows no reader.
//!
//! Feedback in ERC-8004's registry counts if it is of listed clients: that of strangers costs cents. There may be much of it, so it
//! is read apart from owner, stake and other numbers, by `contracts/ListedFeedback.sol`.

use std::{cmp::Reverse, sync::LazyLock};

use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use alloy::sol;
use alloy::sol_types::{SolEvent, SolValue};

use crate::chain::dated::{Call3, Result3, call, code_in};
use crate::chain::fault::{ReadError, TOO_FEW};
use crate::chain::registries::calls::{Check, decode};
use crate::chain::registries::logs::{Drops, add};
use crate::chain::{block::Log, registries::erc8004::is_version_2};
use crate::domain::{AgentId, Feedback, Holders, Measure, Question, Tier, TrustProfile};

sol! {
    /// ERC-20, and ERC-721, whose function is the same.
    function balanceOf(address account) external view returns (uint256);
    /// Of an ERC-721 token the last one is indexed too.
    event Transfer(address indexed from, address indexed to, uint256 value);

    /// The question for feedback: a registry, the clients, the hash of the tag or 0 for any, and how many entries of each client.
    struct Listed { address reputation; address[] clients; bytes32 tag; uint256 each; }

    /// The sum of one agent, with 18 decimals, of so many entries of so many clients.
    #[derive(Debug, PartialEq, Eq)]
    struct Sum { int256 total; uint256 entries; uint256 clients; }
}

/// The key of their contracts.
const CONTRACT: &str = "tiers.contract";

/// A function of the agent's id, by the key that names it.
const FUNCTION: &str = "tiers.function";

/// The event of tokens.
pub(super) const TRANSFER: B256 = Transfer::SIGNATURE_HASH;

/// An agent without a sum of feedback.
const UNREAD: ReadError = ReadError::Reverted("readFeedback, within chain.gas_cap,");

/// The compiled form of `contracts/ListedFeedback.sol`.
static FEEDBACK_CODE: LazyLock<Bytes> =
    LazyLock::new(|| code_in(include_str!("../../contracts/artifacts/ListedFeedback.json")));

/// The numbers that are configured.
#[derive(Debug)]
pub(super) struct Measures(pub(super) Vec<Measure>);

impl Measures {
    /// True if some are of an agent's holders.
    pub(super) fn are_of_holders(&self) -> bool {
        self.0.iter().any(|measure| matches!(measure.question, Question::Balance { .. }))
    }

    pub(super) fn calls(&self, agent: AgentId, holders: Holders) -> impl Iterator<Item = Call3> {
        self.0.iter().filter_map(move |measure| measure.call(agent, holders))
    }

    /// Numbers that are read apart, each with what is asked and its place.
    pub(super) fn feedback(&self) -> impl Iterator<Item = (&Measure, &Feedback, u8)> {
        self.0.iter().zip(0..).filter_map(|(measure, place)| match &measure.question {
            Question::Feedback(of) => Some((measure, of, place)),
            Question::Balance { .. } | Question::Call { .. } => None,
        })
    }

    /// The profile with the highest tier that they give, in the results of calls that asked about these holders. Where it has
    /// others, numbers of these give none.
    pub(super) fn grade(
        &self,
        profile: Option<TrustProfile>,
        asked: Holders,
        results: &mut impl Iterator<Item = Result3>,
    ) -> Result<Option<TrustProfile>, ReadError> {
        let Some(mut profile) = profile else { return Ok(None) };
        if self.are_of_holders() && profile.holders != asked {
            return Ok(Some(profile));
        }
        for (measure, place) in self.0.iter().zip(0..) {
            let number = match measure.question {
                Question::Balance { of_wallet } => {
                    let balance = decode::<balanceOfCall>(CONTRACT, results);
                    if of_wallet && asked.wallet.is_none() { U256::ZERO } else { balance? }
                }
                Question::Call { .. } => number(results.next().ok_or(TOO_FEW)?)?,
                Question::Feedback(_) => continue,
            };
            profile.measured = higher(profile.measured, (measure.tier_of(number), place));
        }
        Ok(Some(profile))
    }

    /// The contracts of these questions.
    pub(super) fn contracts(&self, of: fn(&Question) -> bool) -> impl Iterator<Item = Address> {
        self.0.iter().filter(move |measure| of(&measure.question)).map(|measure| measure.contract)
    }

    /// Adds whom these logs concern.
    pub(super) fn add_drops(&self, logs: &[Log], drops: &mut Drops) {
        for (measure, log) in self.0.iter().flat_map(|of| logs.iter().map(move |log| (of, log))) {
            match measure.question {
                Question::Balance { .. } if log.address == measure.contract => add_holders(log, drops),
                Question::Call { .. } if log.address == measure.contract => drops.add_named(log),
                // Feedback is told of by the registries' logs.
                Question::Balance { .. } | Question::Call { .. } | Question::Feedback(_) => {}
            }
        }
    }

    /// A question to each contract that shows whether it is the right one; the agent is any one.
    pub(super) fn checks(&self, agent: AgentId) -> impl Iterator<Item = Check> {
        let anybody = Address::from_word(U256::MAX.into());
        self.0.iter().filter_map(move |measure| match measure.question {
            Question::Balance { .. } => {
                Some(Check::new(CONTRACT, measure.contract, &balanceOfCall { account: anybody }))
            }
            Question::Call { .. } => {
                let call = measure.call(agent, Holders::owned_by(anybody))?;
                Some(Check { key: CONTRACT, call, judge: has_function })
            }
            // The registries' own check has it.
            Question::Feedback(_) => None,
        })
    }
}

impl Measure {
    fn call(&self, agent: AgentId, Holders { owner, wallet }: Holders) -> Option<Call3> {
        match &self.question {
            Question::Balance { of_wallet } => {
                let account = if *of_wallet { wallet.unwrap_or_default() } else { owner };
                Some(call(self.contract, &balanceOfCall { account }))
            }
            Question::Call { selector } => {
                let data = [&selector[..], &agent.token_id().abi_encode()].concat().into();
                Some(Call3 { target: self.contract, allowFailure: true, callData: data })
            }
            Question::Feedback(_) => None,
        }
    }
}

/// The higher tier; of equal ones that of the first source.
pub(super) fn higher(one: Option<(Tier, u8)>, other: (Tier, u8)) -> Option<(Tier, u8)> {
    one.into_iter().chain([other]).max_by_key(|(tier, place)| (*tier, Reverse(*place)))
}

/// The number that a function of the agent's id returned.
fn number(result: Result3) -> Result<U256, ReadError> {
    if !result.success {
        return Err(ReadError::Reverted(FUNCTION));
    }
    if result.returnData.is_empty() {
        return Err(ReadError::NoCode(CONTRACT));
    }
    let word = <[u8; 32]>::try_from(&result.returnData[..]).map_err(|_| ReadError::Undecodable(FUNCTION))?;
    Ok(U256::from_be_bytes(word))
}

/// A function that reverts with a reason is there, and does not know the agent.
fn has_function(key: &'static str, result: &Result3) -> Result<&'static str, ReadError> {
    let says_why = !result.success && !result.returnData.is_empty();
    match number(result.clone()) {
        Err(error @ ReadError::NoCode(_)) => Err(error),
        Err(_) if !says_why => Err(ReadError::OtherContract { key, function: FUNCTION }),
        Ok(_) | Err(_) => Ok(FUNCTION),
    }
}

/// A transfer concerns those between whom it is. One of nothing, or to oneself, changes no balance: anybody can make a thousand of
/// these, each from an owner who agreed to nothing.
fn add_holders(log: &Log, drops: &mut Drops) {
    match log.topics.as_slice() {
        [TRANSFER, from, to, ..] if from == to => {}
        [TRANSFER, _, _] if log.first_word == Some(B256::ZERO) => {}
        [TRANSFER, from, to, ..] => {
            for holder in [from, to] {
                add(&mut drops.holders, Address::from_word(*holder), log.block_number);
            }
        }
        // It names nobody in a topic.
        [TRANSFER, ..] => drops.add_everybody(log),
        _ => {}
    }
}

/// The init code that reads the feedback of these agents.
pub(super) fn feedback_code(reputation: Address, of: &Feedback, agents: &[AgentId]) -> Bytes {
    let tag = if of.tag.is_empty() { B256::ZERO } else { keccak256(&of.tag) };
    let listed = Listed { reputation, clients: of.clients.clone(), tag, each: U256::from(of.each) };
    let agents: Vec<U256> = agents.iter().map(|agent| agent.token_id()).collect();
    [FEEDBACK_CODE.as_ref(), &(listed, agents).abi_encode_params()].concat().into()
}

/// The sums of the first agents, of one at least, in what [`feedback_code`] returned.
pub(super) fn sums(results: &[Result3]) -> Result<Vec<Sum>, ReadError> {
    let (version, agents) = results.split_first().ok_or(TOO_FEW)?;
    is_version_2("chain.contracts.reputation", version)?;
    let sum = |result: &Result3| result.success.then(|| Sum::abi_decode(&result.returnData).ok()).flatten();
    let sums: Vec<Sum> = agents.iter().map_while(sum).collect();
    Some(sums).filter(|sums| !sums.is_empty()).ok_or(UNREAD)
}

/// The sum, or the average where enough clients count; 0 where that is less.
pub(super) fn score(sum: &Sum, average_over: Option<usize>) -> U256 {
    let total = U256::try_from(sum.total).unwrap_or_default();
    match average_over {
        None => total,
        Some(least) if sum.clients >= U256::from(least) => total.checked_div(sum.entries).unwrap_or_default(),
        Some(_) => U256::ZERO,
    }
}

#[cfg(test)]
mod tests;
