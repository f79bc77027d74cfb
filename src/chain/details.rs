//! Details that are read apart from what decides who passes: strangers write most of them. A read of theirs that fails, or
//! takes long, costs an agent its details alone.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::U64;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use serde_json::json;
use tokio::time::timeout;

use crate::chain::agents::{Agents, ReadAgents, Wanted};
use crate::chain::answer::{Call3, Result3};
use crate::chain::block::{Date, block_call, is_of};
use crate::chain::fault::ReadError;
use crate::chain::pool::{Answers, Call, Input};
use crate::chain::registries::documented;
use crate::chain::registries::erc8004::{
    Answered, DetailsRead, Response, evidence, read_details, response_filter,
};
use crate::chain::source::At;
use crate::domain::agent_id::AgentId;
use crate::domain::profile::{Details, TrustProfile};
use crate::ports::chain::ChainFault;

/// Where no node gives logs of long ago they are asked for again after this time, in microseconds.
const HISTORY_RETRY_MICROS: u64 = 600_000_000;

impl Agents {
    /// Reads the details of these agents at the block of an answer, and answers each as its read comes: in one call, and each by
    /// itself where that may help.
    pub(super) fn read_details<'a>(
        &'a self,
        wanted: Vec<(Wanted, TrustProfile)>,
        read: &'a ReadAgents,
        until: u64,
    ) -> BoxFuture<'a, ()> {
        async move {
            if wanted.is_empty() {
                return;
            }
            let agents: Vec<AgentId> = wanted.iter().map(|(one, _)| one.key.0).collect();
            // The rest of the time is for each alone.
            let now = self.now();
            let share = if agents.len() > 1 { now + until.saturating_sub(now) * 3 / 4 } else { until };
            let details = match self.all_details(&agents, read.seen.at.date, share).await {
                Err(fault) if agents.len() > 1 && self.may_help_alone(&fault) => {
                    let alone = |one| self.read_details(vec![one], read, until);
                    join_all(wanted.into_iter().map(alone)).await;
                    return;
                }
                Ok(all) => all,
                Err(fault) => agents.iter().map(|_| Err(fault.clone())).collect(),
            };
            let is_alone = agents.len() == 1;
            let one_by_one = wanted.into_iter().zip(details).map(async |((one, mut profile), details)| {
                if details.as_ref().is_ok_and(|details| details.ran_out) && !is_alone {
                    return self.read_details(vec![(one, profile)], read, until).await;
                }
                let details = match details {
                    Ok(details) => self.with_evidence(one.key.0, details, read.seen.at.date, until).await,
                    Err(fault) => Err(fault),
                };
                let fault = match details {
                    Ok(details) => {
                        profile.details = Some(details);
                        None
                    }
                    Err(fault) => Some(without_details(fault)),
                };
                self.keep(one, read, profile, fault);
            });
            join_all(one_by_one).await;
        }
        .boxed()
    }

    /// The details of all these agents at a block, each with what went wrong with it alone.
    async fn all_details(
        &self,
        agents: &[AgentId],
        date: Date,
        until: u64,
    ) -> Result<Vec<Result<DetailsRead, ChainFault>>, ChainFault> {
        let at = At::Dated(date);
        if let Some(code) = self.registries.details_code(agents) {
            let decode = |results: Vec<_>| results.iter().map(read_details).collect::<Result<Vec<_>, _>>();
            let all = self.source.create((at, until), &code, decode).await?;
            return Ok(all.into_iter().map(Ok).collect());
        }
        let calls: Vec<Call3> =
            agents.iter().flat_map(|agent| self.registries.details_calls(*agent)).collect();
        let each = calls.len() / agents.len().max(1);
        let decode = |results: Vec<Result3>| {
            let read = |results: &[Result3]| {
                documented::read_details(&self.registries, &mut results.iter().cloned())
            };
            Ok(results.chunks(each.max(1)).map(read).collect::<Vec<_>>())
        };
        let (seen, all) = self.source.read((at, Input::Strangers), until, &calls, decode).await?;
        let fault = |error: ReadError| error.at(Arc::clone(&seen.endpoint), "eth_call");
        let read = |details| DetailsRead { details, ran_out: false, latest: None };
        Ok(all.into_iter().map(|details| details.map(read).map_err(fault)).collect())
    }

    /// The details with the evidence of the latest validation, where a node has the log of it.
    async fn with_evidence(
        &self,
        agent: AgentId,
        read: DetailsRead,
        date: Date,
        until: u64,
    ) -> Result<Details, ChainFault> {
        let mut details = read.details;
        if let (Some(latest), Some(validation)) = (read.latest, &mut details.validation.latest) {
            validation.evidence = self.evidence(agent, latest, date, until).await?.unwrap_or_default();
        }
        Ok(details)
    }

    /// Fails where nodes have another block by now, or do not have this one yet.
    async fn evidence(
        &self,
        agent: AgentId,
        latest: Answered,
        date: Date,
        until: u64,
    ) -> Result<Option<String>, ChainFault> {
        let left = Duration::from_micros(until.saturating_sub(self.now()));
        let Ok(mut retry_micros) = timeout(left, self.history_retry_micros.lock()).await else {
            return Ok(None);
        };
        let due = self.registries.validation.filter(|_| self.now() >= *retry_micros);
        let Some(validation) = due else { return Ok(None) };
        let number = U64::from(date.number);
        let filter = response_filter(validation, agent, latest, json!(number));
        let calls = [block_call(json!(number)), Call { method: "eth_getLogs", params: json!([filter]) }];
        let read = |answers: &mut Answers<'_>| {
            // A node that is behind may lack the last log.
            is_of(answers, date)?;
            answers.next::<Vec<Response>>()
        };
        match self.source.pool.ask(until, (&calls, Input::Strangers), read).await {
            Ok(logs) => Ok(evidence(latest, &logs)),
            Err(fault) if matches!(fault.cause.downcast_ref(), Some(ReadError::OtherBlock(_))) => Err(fault),
            Err(fault) => {
                // Of one agent there may be too many.
                if !matches!(fault.cause.downcast_ref(), Some(ReadError::TooLong(_))) {
                    *retry_micros = self.now() + HISTORY_RETRY_MICROS;
                }
                Ok(None)
            }
        }
    }
}

/// The fault of a read of details.
fn without_details(fault: ChainFault) -> ChainFault {
    match fault.cause.downcast_ref::<ReadError>() {
        Some(error) => ChainFault { cause: Arc::new(ReadError::NoDetails(Arc::new(error.clone()))), ..fault },
        None => fault,
    }
}
