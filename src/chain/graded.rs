//! Reads of agents with the tiers that numbers on the chain give them (`measures`).
//!
//! A balance is one of the agent's holders, who are not known before they are read. So those of before are asked about, in the
//! same call, and where others hold the agent by then, they are asked about once more: all that decides is from one block.
//! Feedback is read after them, at that block.

use alloy::primitives::Address;

use crate::chain::agents::Agents;
use crate::chain::answer::{Call3, Date, Result3};
use crate::chain::fault::{ReadError, may_lie_in_one};
use crate::chain::measures::feedback::{self, Sum};
use crate::chain::measures::higher;
use crate::chain::pool::Input;
use crate::chain::source::At;
use crate::domain::agent_id::AgentId;
use crate::domain::holders::Holders;
use crate::domain::measure::Feedback;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::{ChainFault, Parts};

/// How often holders are asked about. Only at the latest block can they change from answer to answer.
const ROUNDS_MAX: usize = 3;

impl Agents {
    /// These agents, with as much of their details as is asked for and comes with the rest.
    pub(super) async fn graded(
        &self,
        agents: &[AgentId],
        parts: Parts,
        at: At,
    ) -> Result<(Date, Vec<Option<TrustProfile>>), ChainFault> {
        let Self { registries, measures, .. } = self;
        let known = |agent: &AgentId| self.cache.last_holders(*agent);
        let nobody = Holders::owned_by(Address::ZERO);
        let mut asked: Vec<Holders> = agents.iter().map(|agent| known(agent).unwrap_or(nobody)).collect();
        let mut rounds = 0;
        loop {
            rounds += 1;
            let calls = agents.iter().zip(&asked).flat_map(|(agent, holders)| {
                registries.profile_calls(*agent, parts).into_iter().chain(measures.calls(*agent, *holders))
            });
            let calls: Vec<Call3> = calls.collect();
            let decode = |results: Vec<Result3>| {
                let results = &mut results.into_iter();
                let read = |(agent, asked): (&AgentId, &Holders)| {
                    let profile = registries.read_profile(*agent, parts, results)?;
                    match measures.grade(profile, *asked, results)? {
                        (_, false) if rounds == ROUNDS_MAX => {
                            Err(ReadError::Unintelligible("its holders change from answer to answer"))
                        }
                        graded => Ok(graded),
                    }
                };
                agents.iter().zip(&asked).map(read).collect::<Result<Vec<_>, _>>()
            };
            // Strangers write most of the details.
            let input = if parts == Parts::Gate { Input::Ours } else { Input::Strangers };
            let (date, graded) = self.source.read((at, input), &calls, decode).await?;
            if graded.iter().all(|(_, is_graded)| *is_graded) {
                let mut profiles = graded.into_iter().map(|(profile, _)| profile).collect::<Vec<_>>();
                let at = if at == At::Latest { At::Dated(date) } else { at };
                for (measure, of, place) in measures.of_feedback() {
                    let minted = agents.iter().zip(&profiles).filter(|(_, profile)| profile.is_some());
                    let minted: Vec<AgentId> = minted.map(|(agent, _)| *agent).collect();
                    let sums = self.sums(measure.contract, of, &minted, at).await?;
                    for (profile, sum) in profiles.iter_mut().flatten().zip(&sums) {
                        let tier = measure.tier_of(feedback::number(sum, of.average_over));
                        profile.measured = higher(profile.measured, (tier, place));
                    }
                }
                return Ok((date, profiles));
            }
            let holders = graded.iter().map(|(profile, _)| profile.as_ref().map_or(nobody, |it| it.holders));
            asked = holders.collect();
        }
    }

    /// The sums of all these agents, or none: in as many calls as their gas takes.
    async fn sums(
        &self,
        reputation: Address,
        of: &Feedback,
        agents: &[AgentId],
        at: At,
    ) -> Result<Vec<Sum>, ChainFault> {
        let deadline = self.source.pool.deadline();
        let (mut sums, mut most) = (Vec::new(), agents.len());
        while let Some(rest @ [_, ..]) = agents.get(sums.len()..) {
            let some = rest.get(..most).unwrap_or(rest);
            let code = feedback::code(reputation, of, some);
            let read = self.source.create((at, deadline), &code, |results| feedback::sums(&results)).await;
            match read {
                Ok(more) => sums.extend(more),
                Err(fault) if some.len() > 1 && may_lie_in_one(&fault) => most = some.len() / 2,
                Err(fault) => return Err(fault),
            }
        }
        Ok(sums)
    }
}
