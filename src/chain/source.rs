//! Dated reads: one `eth_call` whose answer counts only if it proves its age.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes};
use alloy::rpc::json_rpc::ErrorPayload;
use serde_json::{Value, json};

use crate::chain::answer::{Call3, Date, Dated, Result3, SharedFloor, dated_call, read_dated};
use crate::chain::fault::ReadError;
use crate::chain::pool::{Call, Deadline, Lane, Node, NodeAnswer, Pool, Terms};
use crate::ports::chain::ChainFault;
use crate::ports::clock::Clock;

/// How long one read may take, however many nodes are tried and whoever else it waits for. The pipeline holds the reads
/// of one request together to the same.
pub(super) const READ_TIME_MAX: Duration = Duration::from_secs(6);

/// The state that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// That of the latest block.
    Latest,
    /// That after exactly this block (EIP-1898). The hash proves the age.
    Block(B256),
}

/// Where dated answers come from.
pub(super) struct Source {
    pub(super) pool: Arc<Pool>,
    pub(super) floor: Arc<SharedFloor>,
    multicall: Address,
    /// There is no Multicall3 at its address.
    lacks_multicall: AtomicBool,
    gas_cap: u64,
    clock: Arc<dyn Clock>,
}

impl Source {
    pub(super) fn new(
        pool: Arc<Pool>,
        floor: Arc<SharedFloor>,
        (multicall, gas_cap): (Address, u64),
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { pool, floor, multicall, lacks_multicall: AtomicBool::new(false), gas_cap, clock }
    }

    /// The terms of a read that begins now.
    pub(super) fn terms(&self, lane: Lane) -> Terms {
        let deadline = Deadline::after(self.clock.monotonic_micros(), READ_TIME_MAX);
        Terms { lane, deadline, is_simple: false }
    }

    /// The results of these calls, as `decode` understands them, with the block that they are about.
    ///
    /// # Errors
    ///
    /// When no answer counted before the deadline; or that of `decode`, which is about the chain and not about a node.
    pub(super) async fn read<T>(
        &self,
        terms: &Terms,
        at: At,
        calls: &[Call3],
        decode: impl Fn(Vec<Result3>) -> Result<T, ReadError>,
    ) -> Result<(Date, T), ChainFault> {
        let chain = self.pool.chain_id().await?;
        if !self.lacks_multicall.load(Ordering::Relaxed) {
            let read = self.try_read(terms, at, (calls, Some(self.multicall)), (chain, &decode)).await?;
            if let Some(read) = read {
                return read;
            }
        }
        let read = self.try_read(terms, at, (calls, None), (chain, &decode)).await?;
        if !self.lacks_multicall.swap(true, Ordering::Relaxed) {
            tracing::info!("there is no contract at chain.multicall: profiles are read without it");
        }
        read.unwrap_or_else(|| Err(self.pool.unintelligible()))
    }

    /// Inside is `None` where there is no Multicall3.
    async fn try_read<T>(
        &self,
        terms: &Terms,
        at: At,
        (calls, multicall): (&[Call3], Option<Address>),
        (chain, decode): (u64, &impl Fn(Vec<Result3>) -> Result<T, ReadError>),
    ) -> Result<Option<Result<(Date, T), ChainFault>>, ChainFault> {
        let request = [self.request(at, calls, multicall)];
        let floor = self.floor.begin();
        let read = |node: &Node, answers: Vec<NodeAnswer>| {
            let answer = answers.into_iter().next();
            let Some(data) = returned(node, answer, multicall.is_none())? else { return Ok(None) };
            let Dated { chain_id, date, value } = read_dated(&data)?;
            if chain_id != chain {
                return Err(ReadError::WrongChain { reported: chain_id, chain });
            }
            match at {
                At::Latest => floor.accepts(date)?,
                At::Block(_) => {}
            }
            // What the registries say of an agent is true of the chain, whatever it is.
            Ok(Some((date, decode(value), Arc::clone(node.endpoint()))))
        };
        let Some((date, value, endpoint)) = self.pool.ask(terms, &request, read).await? else {
            return Ok(None);
        };
        if at == At::Latest {
            self.floor.met(date);
        }
        let fault = |error| ChainFault { endpoint, method: "eth_call", cause: Arc::new(error) };
        Ok(Some(value.map(|value| (date, value)).map_err(fault)))
    }

    fn request(&self, at: At, calls: &[Call3], multicall: Option<Address>) -> Call {
        let data = dated_call(calls.to_vec(), multicall);
        let mut call = json!({ "input": data, "gas": format!("{:#x}", self.gas_cap) });
        if let (Some(call), Some(to)) = (call.as_object_mut(), multicall) {
            call.insert("to".to_owned(), json!(to));
        }
        let block = match at {
            At::Latest => json!("latest"),
            At::Block(hash) => json!({ "blockHash": hash }),
        };
        Call { method: "eth_call", params: Value::Array(vec![call, block]) }
    }
}

/// The data that a call returned. A creation reverts with what is longer than a contract's code may be. `None` where there
/// is no contract.
fn returned(node: &Node, answer: Option<NodeAnswer>, is_creation: bool) -> Result<Option<Bytes>, ReadError> {
    const UNINTELLIGIBLE: ReadError = ReadError::Unintelligible("its result is not what was asked for");
    let data: Bytes = match answer.ok_or(UNINTELLIGIBLE)? {
        Ok(result) => serde_json::from_str(result.get()).map_err(|_| UNINTELLIGIBLE)?,
        Err(error) => match revert_data(&error) {
            Some(data) if is_creation => data,
            Some(_) | None => return Err(node.error(&error)),
        },
    };
    if data.is_empty() && !is_creation { Ok(None) } else { Ok(Some(data)) }
}

/// The data of a revert. Nodes do not agree on its place.
fn revert_data(error: &ErrorPayload) -> Option<Bytes> {
    error.as_revert_data().or_else(|| error.try_data_as::<Bytes>()?.ok())
}
