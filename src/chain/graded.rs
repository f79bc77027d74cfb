//! Reads of agents with the tiers that numbers on the chain give them (`measures`).
//!
//! A balance is one of the agent's holders, who are not known before they are read. So those of before are asked about, in the
//! same call, and where others hold the agent by then, they are asked about once more: all that decides is from one block.
//! Feedback is read after them, at that block.

use std::sync::Arc;

use alloy::primitives::Address;

use crate::chain::agents::{Agents, Read};
use crate::chain::answer::{Call3, Result3};
use crate::chain::fault::{ReadError, is_too_much};
use crate::chain::measures::feedback::{self, Sum};
use crate::chain::measures::higher;
use crate::chain::pool::Input;
use crate::chain::registries::results::TOO_FEW;
use crate::chain::source::{At, Seen};
use crate::domain::agent_id::AgentId;
use crate::domain::holders::Holders;
use crate::domain::measure::Feedback;
use crate::domain::profile::TrustProfile;
use crate::ports::chain::ChainFault;

/// How often holders are asked about. Only at the latest block can they change from answer to answer.
const ROUNDS_MAX: usize = 3;

impl Agents {
    /// What decides of these agents, each with what went wrong with it alone.
    pub(super) async fn graded(
        &self,
        agents: &[AgentId],
        at: At,
        until: u64,
    ) -> Result<(Seen, Vec<Read<TrustProfile>>), ChainFault> {
        let Self { registries, measures, .. } = self;
        let known = |agent: &AgentId| self.cache.last_holders(*agent);
        let nobody = Holders::owned_by(Address::ZERO);
        let mut asked: Vec<Holders> = agents.iter().map(|agent| known(agent).unwrap_or(nobody)).collect();
        let mut rounds = 0;
        loop {
            rounds += 1;
            let calls = agents.iter().zip(&asked).flat_map(|(agent, holders)| {
                registries.gate_calls(*agent).into_iter().chain(measures.calls(*agent, *holders))
            });
            let calls: Vec<Call3> = calls.collect();
            let decode = |results: Vec<Result3>| {
                if results.len() != calls.len() {
                    return Err(TOO_FEW);
                }
                let each = calls.len() / agents.len().max(1);
                let read = |((agent, asked), results): ((&AgentId, &Holders), &[Result3])| {
                    let results = &mut results.iter().cloned();
                    let profile = registries.read_gate(*agent, results)?;
                    match measures.grade(profile, *asked, results)? {
                        (_, false) if rounds == ROUNDS_MAX => {
                            Err(ReadError::Unintelligible("its holders change from answer to answer"))
                        }
                        graded => Ok(graded),
                    }
                };
                Ok(agents.iter().zip(&asked).zip(results.chunks(each.max(1))).map(read).collect::<Vec<_>>())
            };
            let input = if agents.len() > 1 { Input::Group } else { Input::Ours };
            let (seen, graded) = self.source.read((at, input), until, &calls, decode).await?;
            let changed = |read: &Result<(Option<TrustProfile>, bool), ReadError>| {
                read.as_ref().ok().filter(|(_, is_graded)| !is_graded).is_some()
            };
            if !graded.iter().any(changed) {
                let fault = |error: ReadError| error.at(Arc::clone(&seen.endpoint), "eth_call");
                let profiles = graded.into_iter().map(|read| read.map(|(profile, _)| profile).map_err(fault));
                let mut profiles: Vec<Read<TrustProfile>> = profiles.collect();
                for (measure, of, place) in measures.of_feedback() {
                    let minted = agents.iter().zip(&profiles);
                    let minted = minted.filter(|(_, profile)| matches!(profile, Ok(Some(_))));
                    let minted: Vec<AgentId> = minted.map(|(agent, _)| *agent).collect();
                    let sums =
                        self.sums(measure.contract, of, &minted, (At::Dated(seen.at.date), until)).await?;
                    for (profile, sum) in profiles.iter_mut().flatten().flatten().zip(&sums) {
                        let tier = measure.tier_of(feedback::number(sum, of.average_over));
                        profile.measured = higher(profile.measured, (tier, place));
                    }
                }
                return Ok((seen, profiles));
            }
            for (asked, read) in asked.iter_mut().zip(&graded) {
                if let Ok((profile, _)) = read {
                    *asked = profile.as_ref().map_or(nobody, |profile| profile.holders);
                }
            }
        }
    }

    /// The sums of all these agents, or none: in as many calls as their gas takes.
    async fn sums(
        &self,
        reputation: Address,
        of: &Feedback,
        agents: &[AgentId],
        at: (At, u64),
    ) -> Result<Vec<Sum>, ChainFault> {
        let (mut sums, mut most) = (Vec::new(), agents.len());
        while let Some(rest @ [_, ..]) = agents.get(sums.len()..) {
            let some = rest.get(..most).unwrap_or(rest);
            let code = feedback::code(reputation, of, some);
            let read = self.source.create(at, &code, |results| feedback::sums(&results)).await;
            match read {
                Ok(more) => sums.extend(more),
                Err(fault) if some.len() > 1 && is_too_much(&fault) => most = some.len() / 2,
                Err(fault) => return Err(fault),
            }
        }
        Ok(sums)
    }
}
