//! The parts that a configuration names, asked once and all at the same time: nodes, contracts, store and upstreams.
//!
//! Writes nothing.

use std::{sync::Arc, time::Duration};

use alloy::primitives::{Address, U256};
use futures_util::future::join_all;
use tokio::runtime::Handle;

use crate::app::{StartError, chain, store, tenants::Tenants};
use crate::chain::{ChainReader, FIRST_AGENTS, LatestState};
use crate::config::{ConfigSource, Settings, store::StoreSettings};
use crate::domain::{AgentId, Tiers};
use crate::fair_timeout::fair_timeout;
use crate::gateway::watch::check_all;
use crate::os::Os;
use crate::ports::{Chain, ChainFault, Clock, Parts};
use crate::telemetry::Metrics;

/// How long one part is waited for: a little longer than a read of the chain may take.
const TIME_MAX: Duration = Duration::from_secs(7);

/// A part, and its state or what is wrong with it.
pub(crate) type Finding = (String, Result<String, String>);

/// Asks every part that these settings, which were read from `source`, name. One agent is read whole: this one, or the first.
pub(crate) async fn ask(
    settings: &Settings,
    source: ConfigSource,
    agent: Option<AgentId>,
) -> Result<Vec<Finding>, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(Os::new());
    let metrics = Metrics::new()?;
    let tenants = Tenants::new(source, settings, &clock, &metrics)?;
    let table = tenants.table.load_full();
    let mut readers = Vec::new();
    for url in &settings.fixed.chain.pool.urls {
        let mut alone = settings.clone();
        alone.fixed.chain.pool.urls = vec![url.clone()];
        readers.push(chain::reader(&alone, &clock, &metrics, &Handle::current())?);
    }
    let (nodes, store, upstreams) = tokio::join!(
        join_all(readers.iter().map(|reader| or_text(reader.contracts().inspect()))),
        in_time(store::inspect(settings, &clock, &metrics)),
        check_all(&table, TIME_MAX)
    );
    let mut findings = of_chain(settings, &nodes, clock.unix_seconds());
    let answering = readers.iter().zip(&nodes).find(|(_, seen)| seen.is_ok());
    if let Some((reader, Ok(seen))) = answering {
        findings.extend(of_tokens(settings, reader).await);
        let graded_by = tenants.tiers();
        findings.push(of_agent(settings, &graded_by, reader, agent.or(seen.first_agent)).await);
    }
    let part = match &settings.fixed.store {
        StoreSettings::Embedded { path } => format!("store {}", path.display()),
        StoreSettings::Redis(redis) => format!("store {}", redis.url),
    };
    findings.push((part, store));
    findings.extend(upstreams);
    Ok(findings)
}

/// The nodes, and the contracts as the first one that answers sees them.
fn of_chain(settings: &Settings, nodes: &[Result<LatestState, String>], now: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (url, seen) in settings.fixed.chain.pool.urls.iter().zip(nodes) {
        let state = seen.as_ref().map_err(String::clone).map(
            |LatestState { chain, block, timestamp, oddities, .. }| {
                let age_secs = now.saturating_sub(*timestamp);
                [&[format!("chain {chain}, block {block}, {age_secs} s old")], &**oddities]
                    .concat()
                    .join("; ")
            },
        );
        findings.push((format!("node {}", url.origin()), state));
    }
    for (key, address, answer) in nodes.iter().flatten().take(1).flat_map(|seen| &seen.contracts) {
        let state = answer.as_ref().map(|function| format!("answers {function}")).map_err(String::clone);
        findings.push((format!("{key} {address}"), state));
    }
    findings
}

/// The decimals of each token that gives tiers, beside those that are configured: of the one that the stake vault takes, and of each
/// source. With others a tier is had for next to nothing, or by nobody.
async fn of_tokens(settings: &Settings, reader: &ChainReader) -> Vec<Finding> {
    let (tiers, mut findings) = (&settings.fixed.tiers, Vec::new());
    if tiers.sources.stakes.is_some() {
        let configured = tiers.token_decimals;
        let (key, state) = match (in_time(or_text(reader.contracts().stake_token())).await, tiers.token) {
            (Ok(Some(token)), Some(written)) if written != token => {
                ("tiers.token", Err(format!("is {written}, and the stake vault takes {token}")))
            }
            (Ok(Some(token)), _) => ("tiers.token_decimals", of_token(reader, token, configured).await),
            (Ok(None), _) => {
                let unknown = format!("{configured}; the stake vault names no token: compare it yourself");
                ("tiers.token_decimals", Ok(unknown))
            }
            (Err(fault), _) => ("tiers.token_decimals", Err(fault)),
        };
        findings.push((key.to_owned(), state));
    }
    for (token, configured) in &tiers.sources.tokens {
        findings.push(("tiers.decimals".to_owned(), of_token(reader, *token, *configured).await));
    }
    findings
}

async fn of_token(reader: &ChainReader, token: Address, configured: u8) -> Result<String, String> {
    match in_time(or_text(reader.contracts().decimals(token))).await? {
        Some(decimals) if decimals == configured => Ok(format!("{decimals}, as the token {token} says")),
        Some(decimals) => Err(format!("is {configured}, and the token {token} has {decimals}")),
        None => Ok(format!("{configured}; the token {token} says none: compare it yourself")),
    }
}

/// The agent as verifications see it.
async fn of_agent(
    settings: &Settings,
    graded_by: &Tiers,
    reader: &ChainReader,
    agent: Option<AgentId>,
) -> Finding {
    let Some(agent) = agent else {
        let none = format!("none of 0 to {} was found; --agent-id names another one", FIRST_AGENTS - 1);
        return ("agent".to_owned(), Ok(none));
    };
    let read = in_time(or_text(reader.latest_profile(agent, Parts::Whole))).await;
    let state = read.and_then(|profile| {
        let profile = profile.ok_or_else(|| "is not minted".to_owned())?;
        let tiers = &settings.fixed.tiers;
        let tier = graded_by.grade(agent, &profile).tier;
        let limit = tiers.requests_per_minute.get(tier);
        let limit =
            limit.map_or_else(|| "never passes".to_owned(), |quota| format!("{} a minute", quota.limit));
        let staked = |stake| format!(", {} tokens staked", in_tokens(stake, tiers.token_decimals));
        let (owner, staked) = (profile.holders.owner, profile.stake.map(staked).unwrap_or_default());
        Ok(format!("owner {owner}{staked}, tier {} ({}), {limit}", tier.number(), tier.name()))
    });
    (format!("agent {agent}"), state)
}

/// An amount in the token's smallest unit, in whole tokens.
fn in_tokens(units: U256, decimals: u8) -> String {
    let decimals = usize::from(decimals);
    let digits = format!("{:0>width$}", units.to_string(), width = decimals + 1);
    let (whole, fraction) = digits.split_at(digits.len() - decimals);
    format!("{whole}.{fraction}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A read whose fault is told without its node: that stands in a line of its own.
async fn or_text<T>(read: impl Future<Output = Result<T, ChainFault>>) -> Result<T, String> {
    read.await.map_err(|fault| fault.cause.to_string())
}

async fn in_time<T>(asked: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = || Err(format!("no answer within {} s", TIME_MAX.as_secs()));
    fair_timeout(TIME_MAX, asked).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use alloy::primitives::U256;

    use super::in_tokens;

    #[test]
    fn an_amount_is_written_in_whole_tokens_as_the_configuration_writes_it() {
        for (units, decimals, expected) in [
            (0, 18, "0"),
            (1, 0, "1"),
            (1_000, 0, "1000"),
            (1_500_000, 6, "1.5"),
            (1, 6, "0.000001"),
            (1_000_000_000_000_000_000_u64, 18, "1"),
            (1_000_000_000_000_000_000_u64, 6, "1000000000000"),
        ] {
            assert_eq!(in_tokens(U256::from(units), decimals), expected);
        }
    }
}
