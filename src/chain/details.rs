//! Details that are read apart from what decides who passes: strangers write most of them. A read of theirs that fails, or
//! takes long, costs an agent its details alone.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::U64;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};
use serde_json::json;
use tokio::time::timeout;

use crate::chain::agents::Agents;
use crate::chain::answer::Date;
use crate::chain::block::{block_call, is_of};
use crate::chain::fault::{ReadError, may_lie_in_one};
use crate::chain::pool::{Answers, Call, Input};
use crate::chain::registries::erc8004::{
    Answered, DetailsRead, Response, evidence, read_details, response_filter,
};
use crate::chain::source::At;
use crate::domain::agent_id::AgentId;
use crate::domain::profile::Details;
use crate::ports::chain::ChainFault;

/// How long details may take, in microseconds: half the time of who waits. The rest is for what decides.
const TIME_MAX_MICROS: u64 = 3_000_000;

/// Where no node gives logs of long ago they are asked for again after this time, in microseconds.
const HISTORY_RETRY_MICROS: u64 = 600_000_000;

impl Agents {
    /// The details of these agents at the block of an answer that was asked for at `at`, in their order. None where the
    /// registries have them with the rest.
    pub(super) async fn details(
        &self,
        agents: &[AgentId],
        at: At,
        date: Date,
    ) -> Vec<Result<Details, ChainFault>> {
        let at = if at == At::Latest { At::Dated(date) } else { at };
        let until = self.now() + TIME_MAX_MICROS;
        let mut all = Vec::new();
        for (agent, read) in agents.iter().zip(self.details_at(agents, at, until).await) {
            all.push(match read {
                Ok(read) => self.with_evidence(*agent, read, date, until).await.map_err(without_details),
                Err(fault) => Err(fault),
            });
        }
        all
    }

    /// All of them in one call; each by itself whose share of it is too small; half of them in a call where one fails.
    fn details_at<'a>(
        &'a self,
        agents: &'a [AgentId],
        at: At,
        until: u64,
    ) -> BoxFuture<'a, Vec<Result<DetailsRead, ChainFault>>> {
        async move {
            let code = self.registries.details_code(agents).filter(|_| !agents.is_empty());
            let Some(code) = code else { return Vec::new() };
            let decode = |results: Vec<_>| results.iter().map(read_details).collect::<Result<Vec<_>, _>>();
            let read = self.source.create((at, until), &code, decode).await;
            match read {
                Ok(all) if agents.len() > 1 => {
                    let whole = async |(read, agent): (DetailsRead, &'a AgentId)| {
                        let again = if read.ran_out {
                            self.details_at(from_ref(agent), at, until).await.pop()
                        } else {
                            None
                        };
                        again.unwrap_or(Ok(read))
                    };
                    join_all(all.into_iter().zip(agents).map(whole)).await
                }
                Ok(all) => all.into_iter().map(Ok).collect(),
                Err(fault) if agents.len() > 1 && may_lie_in_one(&fault) => {
                    let (some, others) = agents.split_at(agents.len() / 2);
                    let both =
                        join(self.details_at(some, at, until), self.details_at(others, at, until)).await;
                    [both.0, both.1].into_iter().flatten().collect()
                }
                Err(fault) => {
                    let fault = without_details(fault);
                    agents.iter().map(|_| Err(fault.clone())).collect()
                }
            }
        }
        .boxed()
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
