//! Numbers on the chain, besides stakes, that give agents their tiers: one file per question, with its call, the number in
//! the result, and whom the logs of its contract concern.
//! Knows no reader.

pub(super) mod balance;
pub(super) mod feedback;
mod function;

use std::cmp::Reverse;
use std::sync::Arc;

use alloy::primitives::{Address, U256};

use crate::chain::answer::{Call3, Result3};
use crate::chain::block::Log;
use crate::chain::fault::ReadError;
use crate::chain::registries::logs::Drops;
use crate::chain::registries::results::{Check, Judge, TOO_FEW, answers};
use crate::domain::agent_id::AgentId;
use crate::domain::holders::Holders;
use crate::domain::measure::{Feedback, Measure, Question};
use crate::domain::profile::TrustProfile;
use crate::domain::tier::Tier;

/// The key of their contracts.
pub(super) const CONTRACT: &str = "tiers.contract";

/// The numbers that are configured.
#[derive(Debug, Clone)]
pub(super) struct Measures(Arc<[Measure]>);

impl Measures {
    pub(super) fn new(measures: Vec<Measure>) -> Self {
        Self(measures.into())
    }

    /// True if some are of an agent's holders.
    pub(super) fn are_of_holders(&self) -> bool {
        self.0.iter().any(|measure| matches!(measure.question, Question::Balance { .. }))
    }

    pub(super) fn calls(&self, agent: AgentId, holders: Holders) -> impl Iterator<Item = Call3> {
        self.0.iter().filter_map(move |measure| measure.call(agent, holders))
    }

    /// Those that are read apart, each with what is asked and its place.
    pub(super) fn of_feedback(&self) -> impl Iterator<Item = (&Measure, &Feedback, u8)> {
        self.0.iter().zip(0..).filter_map(|(measure, place)| match &measure.question {
            Question::Feedback(of) => Some((measure, of, place)),
            Question::Balance { .. } | Question::Call { .. } => None,
        })
    }

    /// Those that are called, each with its place.
    fn called(&self) -> impl Iterator<Item = (&Measure, u8)> {
        self.0.iter().zip(0..).filter(|(measure, _)| !matches!(measure.question, Question::Feedback(_)))
    }

    /// The profile with the highest tier that they give, in the results of calls that asked about these holders; `false`: it
    /// has others.
    pub(super) fn grade(
        &self,
        profile: Option<TrustProfile>,
        asked: Holders,
        results: &mut impl Iterator<Item = Result3>,
    ) -> Result<(Option<TrustProfile>, bool), ReadError> {
        let Some(profile) = profile else { return Ok((None, true)) };
        if self.are_of_holders() && profile.holders != asked {
            return Ok((Some(profile), false));
        }
        let mut measured = None;
        for (measure, place) in self.called() {
            let tier = measure.tier_of(measure.number(results.next().ok_or(TOO_FEW)?, asked)?);
            measured = higher(measured, (tier, place));
        }
        Ok((Some(TrustProfile { measured, ..profile }), true))
    }

    /// The contracts of these questions.
    pub(super) fn contracts(&self, of: fn(&Question) -> bool) -> impl Iterator<Item = Address> {
        self.0.iter().filter(move |measure| of(&measure.question)).map(|measure| measure.contract)
    }

    /// Adds whom these logs concern.
    pub(super) fn add_drops(&self, logs: &[Log], drops: &mut Drops) {
        for (measure, log) in self.0.iter().flat_map(|of| logs.iter().map(move |log| (of, log))) {
            match measure.question {
                Question::Balance { .. } if log.address == measure.contract => {
                    balance::add_drops(log, drops);
                }
                Question::Call { .. } if log.address == measure.contract => drops.add_named(log),
                // Feedback is told of by the registries' logs.
                Question::Balance { .. } | Question::Call { .. } | Question::Feedback(_) => {}
            }
        }
    }

    /// A question to each contract that shows whether it is the right one; the agent is any one.
    pub(super) fn checks(&self, agent: AgentId) -> impl Iterator<Item = Check> {
        let anybody = Address::from_word(U256::MAX.into());
        let holders = Holders { owner: anybody, wallet: Some(anybody) };
        self.0.iter().filter_map(move |measure| {
            let judge: Judge = match measure.question {
                Question::Balance { .. } => answers::<balance::balanceOfCall>,
                Question::Call { .. } => function::found,
                // The registries' own check has it.
                Question::Feedback(_) => return None,
            };
            Some(Check { key: CONTRACT, call: measure.call(agent, holders)?, judge })
        })
    }
}

impl Measure {
    fn call(&self, agent: AgentId, holders: Holders) -> Option<Call3> {
        match &self.question {
            Question::Balance { of_wallet } => {
                Some(balance::call(self.contract, holder(holders, *of_wallet).unwrap_or_default()))
            }
            Question::Call { selector } => Some(function::call(self.contract, *selector, agent)),
            Question::Feedback(_) => None,
        }
    }

    fn number(&self, result: Result3, holders: Holders) -> Result<U256, ReadError> {
        match &self.question {
            Question::Balance { of_wallet } => match holder(holders, *of_wallet) {
                Some(_) => balance::number(result),
                None => Ok(U256::ZERO),
            },
            Question::Call { .. } => function::number(result),
            Question::Feedback(_) => Err(TOO_FEW),
        }
    }
}

/// The higher tier; of equal ones that of the first source.
pub(super) fn higher(one: Option<(Tier, u8)>, other: (Tier, u8)) -> Option<(Tier, u8)> {
    one.into_iter().chain([other]).max_by_key(|(tier, place)| (*tier, Reverse(*place)))
}

/// Whose balance counts.
const fn holder(Holders { owner, wallet }: Holders, of_wallet: bool) -> Option<Address> {
    if of_wallet { wallet } else { Some(owner) }
}

#[cfg(test)]
mod tests;
