//! Dated reads: one `eth_call` whose answer counts only if it proves its age.

use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alloy::primitives::{Address, B256, Bytes, U64};
use alloy::sol_types::SolCall;
use serde::Serialize;
use serde_json::{Value, json};

use crate::chain::answer::{Call3, Result3, SharedFloor, calls_max, dated_call, getChainIdCall, read_dated};
use crate::chain::block::{Block, Date, block_call, is_of};
use crate::chain::cache::status::ReadAt;
use crate::chain::fault::ReadError;
use crate::chain::gas::{Gas, is_refusal};
use crate::chain::pool::{Answers, Call, Input, Pool};
use crate::chain::registries::identity::{is_consent, isValidSignatureCall};
use crate::domain::holders::Holders;
use crate::ports::chain::{Asked, AskedHolders, ChainFault};

/// The state that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// That of the latest block. Of this one, if it is known, the answer says whether it is of the same chain.
    Latest(Option<Block>),
    /// That after the block of an earlier answer: a second read of one profile.
    Dated(Date),
}

/// Where dated answers come from.
pub(super) struct Source {
    pub(super) pool: Arc<Pool>,
    pub(super) floor: Arc<SharedFloor>,
    pub(super) multicall: Address,
    /// There was no Multicall3 at its address, by the last answer of a creation.
    pub(super) lacks_multicall: AtomicBool,
    /// No node ran a creation when that was tried, and none has run one since.
    pub(super) lacks_creations: AtomicBool,
    pub(super) gas: Gas,
}

/// The address of Multicall3, by its key.
const MULTICALL: ReadError = ReadError::NoCode("chain.multicall");

/// The most gas that a wallet may burn that is asked by a call of its own, its 4 KiB of signature included. See
/// `contracts/HolderSignatures.sol`.
const WALLET_GAS_MAX: u64 = 2_100_000;

/// The code of a revert.
const REVERTED: i64 = 3;

/// A call to a contract, or a creation. Some nodes take no `null`, and some no `input`, the newer name of `data`.
#[derive(Serialize)]
struct Called<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Address>,
    data: &'a Bytes,
    #[serde(skip_serializing_if = "U64::is_zero")]
    gas: U64,
}

/// Where an answer is from.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) at: ReadAt,
    pub(super) endpoint: Arc<str>,
}

type Answer = (Seen, Vec<Result3>);

impl Source {
    /// The results of these calls, as `decode` understands them, with the block that they are about. An error of `decode` is
    /// about the chain and not about a node.
    pub(super) async fn read<T>(
        &self,
        (at, input): (At, Input),
        deadline: u64,
        calls: &[Call3],
        decode: impl FnOnce(Vec<Result3>) -> Result<T, ReadError>,
    ) -> Result<(Seen, T), ChainFault> {
        let followed = if let At::Latest(Some(block)) = at { block.number } else { 0 };
        if !self.lacks_multicall.load(Ordering::Relaxed) {
            let to = Some(self.multicall);
            match self.ask(deadline, (at, input), &dated_call(calls.to_vec(), to, followed), (to, true)).await
            {
                Err(fault) if fault.cause.downcast_ref() == Some(&MULTICALL) => {}
                answered => return self.conclude(at, answered?, decode),
            }
        }
        // No proof: a node of another chain, or one that syncs, says the same. The creation's answer is dated, and looks too.
        let look = getChainIdCall {}.abi_encode().into();
        let look = Call3 { target: self.multicall, allowFailure: true, callData: look };
        let data = dated_call(calls.iter().cloned().chain([look]).collect(), None, followed);
        let (seen, mut results) = self.ask(deadline, (at, input), &data, (None, true)).await?;
        let is_absent = results.pop().is_some_and(|look| look.success && look.returnData.is_empty());
        if !self.lacks_multicall.swap(is_absent, Ordering::Relaxed) && is_absent {
            tracing::info!("there is no contract at chain.multicall: profiles are read without it");
        }
        self.conclude(at, (seen, results), decode)
    }

    /// The same at the latest block, with nobody's input.
    pub(super) async fn read_latest<T>(
        &self,
        calls: &[Call3],
        decode: impl FnOnce(Vec<Result3>) -> Result<T, ReadError>,
    ) -> Result<(Seen, T), ChainFault> {
        self.read((At::Latest(None), Input::Ours), self.pool.deadline(), calls, decode).await
    }

    /// The results of the init code of a creation that is never sent. It dates its answer by itself.
    pub(super) async fn create<T>(
        &self,
        (at, deadline): (At, u64),
        code: &Bytes,
        decode: impl FnOnce(Vec<Result3>) -> Result<T, ReadError>,
    ) -> Result<T, ChainFault> {
        let answer = self.ask(deadline, (at, Input::Strangers), code, (None, false)).await?;
        self.lacks_creations.store(false, Ordering::Relaxed);
        self.conclude(at, answer, decode).map(|(_, value)| value)
    }

    /// A creation of nothing but its date, which shows whether nodes run any.
    pub(super) async fn try_creation(&self) -> Result<(), ChainFault> {
        let latest = (At::Latest(None), self.pool.deadline());
        let tried = self.create(latest, &dated_call(Vec::new(), None, 0), |_| Ok(())).await;
        self.lacks_creations.store(tried.as_ref().is_err_and(is_refused), Ordering::Relaxed);
        tried
    }

    /// Which of these holders have code and accept a signature, at the block of the answer that named them, by calls with `to`: for
    /// nodes that run no creation. With the digest zero nobody is asked.
    pub(super) async fn ask_holders(
        &self,
        date: Date,
        holders: Holders,
        (digest, signature): (B256, Bytes),
    ) -> Result<AskedHolders, ChainFault> {
        let number = U64::from(date.number);
        let question = Bytes::from(isValidSignatureCall { hash: digest, signature }.abi_encode());
        let gas = U64::from(self.gas.of(Input::Strangers, self.pool.now()).min(WALLET_GAS_MAX));
        let mut calls = vec![block_call(json!(number))];
        for account in once(&holders.owner).chain(&holders.wallet) {
            calls.push(Call { method: "eth_getCode", params: json!([account, number]) });
            let call = Called { to: Some(*account), data: &question, gas };
            let call = Call { method: "eth_call", params: json!([call, number]) };
            calls.extend((!digest.is_zero()).then_some(call));
        }
        let asked = |answers: &mut Answers<'_>, address: Address| {
            let has_code = !answers.next::<Bytes>()?.is_empty();
            let word = if digest.is_zero() { Ok(Bytes::new()) } else { answers.next() };
            let accepts = match word {
                // Its code was there to be read: the wallet reverted, or burnt its gas, which nodes say by many codes.
                Err(ReadError::NodeError { .. }) => false,
                word => has_code && is_consent(word?.get(..32).unwrap_or_default()),
            };
            Ok(Asked { address, has_code, accepts })
        };
        let read = |answers: &mut Answers<'_>| {
            is_of(answers, date)?;
            let owner = asked(answers, holders.owner)?;
            let wallet = holders.wallet.map(|wallet| asked(answers, wallet)).transpose()?;
            Ok(AskedHolders { owner, wallet })
        };
        self.pool.ask(self.pool.deadline(), (&calls, Input::Strangers), read).await
    }

    /// How many agents go with one call, of which each needs so many inner calls.
    pub(super) fn agents_max(&self, calls_each: usize) -> usize {
        let lacks_multicall = self.lacks_multicall.load(Ordering::Relaxed);
        if lacks_multicall { calls_max() / calls_each.max(1) } else { usize::MAX }
    }

    /// A read of nothing but its date, which proves that a node of the chain answers.
    pub(super) async fn prove(&self, deadline: u64) -> Result<(), ChainFault> {
        self.read((At::Latest(None), Input::Ours), deadline, &[], |_| Ok(())).await.map(drop)
    }

    fn conclude<T>(
        &self,
        at: At,
        (seen, results): Answer,
        decode: impl FnOnce(Vec<Result3>) -> Result<T, ReadError>,
    ) -> Result<(Seen, T), ChainFault> {
        if !matches!(at, At::Dated(_)) {
            self.floor.met(seen.at.date);
        }
        let value = decode(results).map_err(|error| error.at(Arc::clone(&seen.endpoint), "eth_call"))?;
        Ok((seen, value))
    }

    /// The answer that counts, with as much gas as nodes take.
    async fn ask(
        &self,
        deadline: u64,
        (at, input): (At, Input),
        data: &Bytes,
        (multicall, has_hashes): (Option<Address>, bool),
    ) -> Result<Answer, ChainFault> {
        let (newest, chain) = (self.floor.newest(), self.pool.chain_id);
        let named = self.gas.of(input, self.pool.now());
        let mut gas = named;
        loop {
            let request = [request(at, &Called { to: multicall, data, gas: U64::from(gas) })];
            let read = |answers: &mut Answers<'_>| {
                let data = returned(answers, multicall.is_none()).map_err(|error| {
                    if let ReadError::NodeError { message, .. } = &error
                        && gas > 0
                        && is_refusal(message)
                    {
                        ReadError::Gas(message.clone())
                    } else {
                        error
                    }
                })?;
                if data.is_empty() && multicall.is_some() {
                    return Err(MULTICALL);
                }
                let (dated, results) = read_dated(&data, has_hashes)?;
                let (reported, date) = (dated.chain_id, dated.date);
                if reported != chain {
                    return Err(ReadError::WrongChain { reported, chain });
                }
                match at {
                    At::Latest(_) => self.floor.accepts(newest, date)?,
                    At::Dated(first) if date.number < first.number => {
                        return Err(ReadError::Behind { number: date.number, newest: first.number });
                    }
                    // The number alone names no block: another one may stand there by now.
                    At::Dated(first) if first != date => return Err(ReadError::OtherBlock(date.number)),
                    At::Dated(_) => {}
                }
                let is_followed = matches!(at, At::Latest(Some(block)) if dated.shows(&block));
                let at = ReadAt { date, before: dated.before(), is_followed };
                Ok((Seen { at, endpoint: answers.endpoint() }, results))
            };
            match self.pool.ask(deadline, (&request, input), read).await {
                Err(fault) if matches!(fault.cause.downcast_ref(), Some(ReadError::Gas(_))) => {
                    gas = Gas::less(gas);
                }
                answered => {
                    if gas < named && answered.is_ok() {
                        self.gas.took(gas, self.pool.now());
                    }
                    return answered;
                }
            }
        }
    }
}

fn request(at: At, call: &Called<'_>) -> Call {
    let block = match at {
        At::Latest(_) => json!("latest"),
        At::Dated(date) => json!(U64::from(date.number)),
    };
    Call { method: "eth_call", params: Value::Array(vec![json!(call), block]) }
}

/// True when nodes answered that they don't run a creation.
pub(super) fn is_refused(fault: &ChainFault) -> bool {
    matches!(fault.cause.downcast_ref(), Some(ReadError::NoCreation | ReadError::NodeError { .. }))
}

/// The data that a call returned. A creation reverts with what is longer than a contract's code may be. Nodes that run none
/// return nothing, or revert without data.
fn returned(answers: &mut Answers<'_>, is_creation: bool) -> Result<Bytes, ReadError> {
    let data = match answers.next_answer()? {
        Ok(result) => serde_json::from_str(result.get())
            .map_err(|_| ReadError::Unintelligible("its result is not what was asked for"))?,
        Err(error) if is_creation => {
            // Nodes do not agree on the place of the data.
            let data = error.as_revert_data().or_else(|| error.try_data_as::<Bytes>()?.ok());
            let none = (error.code == REVERTED).then(Bytes::new);
            data.or(none).ok_or_else(|| answers.error(&error))?
        }
        Err(error) => return Err(answers.error(&error)),
    };
    if is_creation && data.is_empty() { Err(ReadError::NoCreation) } else { Ok(data) }
}
