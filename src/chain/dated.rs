//! Dated reads: one `eth_call` that also returns chain id, number and time of the block it ran on, and hashes of earlier
//! blocks, by which it shows that it is of the followed chain. Which answers count is decided here, and nowhere by what a
//! node said before.
//!
//! The calls go through Multicall3, or, where there is none, through the init code of a creation that is never sent
//! (`contracts/Snapshot.sol`). Both return the same. So does `contracts/HolderSignatures.sol`, whose calls depend on what the
//! ones before them returned.

use std::sync::{Arc, LazyLock};
use std::{cmp::Ordering, sync::atomic::AtomicBool, sync::atomic::Ordering::Relaxed};

use alloy::primitives::{Address, B256, Bytes, U64, U256, address};
use alloy::sol;
use alloy::sol_types::abi::AbiDecoderConfig;
use alloy::sol_types::{SolCall, SolValue};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::chain::block::{Block, Date, ReadAt};
use crate::chain::fault::{ReadError, ReadFault, TOO_FEW};
use crate::chain::pool::{ANSWER_BYTES_MAX, Answers, Call, Input, Pool};
use crate::ports::Clock;

sol! {
    /// Multicall3.
    #[derive(Debug)]
    struct Call3 { address target; bool allowFailure; bytes callData; }
    #[derive(Debug)]
    struct Result3 { bool success; bytes returnData; }
    function aggregate3(Call3[] calls) external payable returns (Result3[] returnData);
    function getChainId() external view returns (uint256 chainid);
    function getBlockNumber() external view returns (uint256 blockNumber);
    function getCurrentBlockTimestamp() external view returns (uint256 timestamp);
    function getLastBlockHash() external view returns (bytes32 blockHash);
    function getBlockHash(uint256 blockNumber) external view returns (bytes32 blockHash);

    /// Arbitrum's system contract.
    function arbBlockNumber() external view returns (uint256);
}

/// Arbitrum's `block.number` is the L1's, so its own is asked for too; elsewhere nothing answers here.
const ARB_SYS: Address = address!("0x0000000000000000000000000000000000000064");

/// How many results date an answer. They stand before all others.
const DATES: usize = 3;

/// How many hashes follow them in answers to [`dated_call`].
const HASHES: usize = 2;

/// In the ABI a short answer can point to one long text a thousand times. So what is decoded of an answer is bounded too.
pub(super) const DECODING: AbiDecoderConfig = AbiDecoderConfig::new().memory_limit(2 * ANSWER_BYTES_MAX);

/// The compiled form of `contracts/Snapshot.sol`.
static SNAPSHOT_CODE: LazyLock<Bytes> =
    LazyLock::new(|| code_in(include_str!("../../contracts/artifacts/Snapshot.json")));

/// The compiled form of `contracts/HolderSignatures.sol`.
static HOLDER_SIGNATURES_CODE: LazyLock<Bytes> =
    LazyLock::new(|| code_in(include_str!("../../contracts/artifacts/HolderSignatures.json")));

/// A call that may fail.
pub(super) fn call(target: Address, call: &impl SolCall) -> Call3 {
    Call3 { target, allowFailure: true, callData: call.abi_encode().into() }
}

pub(super) fn code_in(artifact: &str) -> Bytes {
    let artifact: Value = serde_json::from_str(artifact).unwrap_or_default();
    artifact.get("bytecode").and_then(|code| code.as_str()?.parse().ok()).unwrap_or_default()
}

/// How far the time of a block may be ahead of ours, in seconds. Only once ours has come so far are others believed again.
const AHEAD_SECS_MAX: u64 = 30;

/// The call data for these calls, with those that date the answer and show the block of this number around them; to be sent to
/// `multicall`, or as a creation. Arbitrum's comes last: on other chains something else may stand there, and burn the gas of all
/// that follows.
pub(super) fn dated_call(calls: Vec<Call3>, multicall: Option<Address>, followed: u64) -> Bytes {
    let arb_sys = call(ARB_SYS, &arbBlockNumberCall {});
    let followed = U256::from(followed);
    let Some(multicall) = multicall else {
        let calls: Vec<Call3> = calls.into_iter().chain([arb_sys]).collect();
        return [SNAPSHOT_CODE.as_ref(), &(calls, followed).abi_encode_params()].concat().into();
    };
    let dates = [
        call(multicall, &getChainIdCall {}),
        call(multicall, &getBlockNumberCall {}),
        call(multicall, &getCurrentBlockTimestampCall {}),
        call(multicall, &getLastBlockHashCall {}),
        call(multicall, &getBlockHashCall { blockNumber: followed }),
    ];
    aggregate3Call { calls: dates.into_iter().chain(calls).chain([arb_sys]).collect() }.abi_encode().into()
}

/// The init code that reads the holders of a token in this registry, which has wallets or not, and asks each that has code
/// for a signature: four results.
pub(super) fn holder_signatures_call(
    (identity, has_wallets): (Address, bool),
    token: U256,
    digest: B256,
    signature: &[u8],
) -> Bytes {
    let signature = Bytes::copy_from_slice(signature);
    let question = (identity, token, has_wallets, digest, signature).abi_encode_params();
    [HOLDER_SIGNATURES_CODE.as_ref(), &question].concat().into()
}

/// The chain and the block of an answer, by its own words.
pub(super) struct Dated {
    pub(super) chain_id: u64,
    pub(super) date: Date,
    /// The number is that of Arbitrum's system contract. The hashes are the L1's then.
    is_arbitrum: bool,
    /// Of the block before, and of the one that was named.
    hashes: Option<[B256; HASHES]>,
}

impl Dated {
    /// The hash of the block before, where it is the chain's own.
    pub(super) fn before(&self) -> Option<B256> {
        self.hashes.filter(|_| !self.is_arbitrum).map(|[before, _]| before)
    }

    /// True when it ran on this block, or above it on the same chain. At its height the time and the block before tell.
    pub(super) fn shows(&self, followed: &Block) -> bool {
        let Date { number, timestamp } = self.date;
        match (number.cmp(&followed.number), self.hashes) {
            (Ordering::Less, _) | (_, None) => false,
            (Ordering::Equal, Some([before, _])) => {
                timestamp == followed.timestamp && (before == followed.parent || self.is_arbitrum)
            }
            (Ordering::Greater, Some([_, named])) => named == followed.hash || self.is_arbitrum,
        }
    }
}

/// The chain and the block of an answer, and the results of the calls. With the hashes if it is to [`dated_call`].
pub(super) fn read_dated(data: &[u8], has_hashes: bool) -> Result<(Dated, Vec<Result3>), ReadError> {
    let undated = ReadError::Unintelligible("it does not say which block it is about");
    let Ok(mut results) = aggregate3Call::abi_decode_returns_with_config(data, DECODING) else {
        return Err(undated);
    };
    let arb_number = results.pop().as_ref().and_then(number);
    let mut values = results.split_off(DATES.min(results.len()));
    let dates: Vec<Option<u64>> = results.iter().map(number).collect();
    let &[Some(chain_id), Some(number), Some(timestamp)] = dates.as_slice() else {
        return Err(undated);
    };
    let hashes = if has_hashes {
        let rest = values.split_off(HASHES.min(values.len()));
        let words: Vec<B256> = values.iter().filter_map(hash).collect();
        values = rest;
        words.try_into().ok()
    } else {
        None
    };
    let date = Date { timestamp, number: arb_number.unwrap_or(number) };
    Ok((Dated { chain_id, date, is_arbitrum: arb_number.is_some(), hashes }, values))
}

fn hash(result: &Result3) -> Option<B256> {
    result.success.then(|| B256::try_from(&result.returnData[..]).ok()).flatten()
}

fn number(result: &Result3) -> Option<u64> {
    let word = result.success.then(|| U256::try_from_be_slice(&result.returnData)).flatten();
    word.filter(|_| result.returnData.len() == 32)?.try_into().ok()
}

/// The newest block that was accounted for or shown: no older answer counts. Time is an argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Floor {
    newest: Option<Date>,
    /// When an answer last met it, in microseconds of the monotonic clock.
    met_micros: u64,
    /// For how long no answer need meet it before it is void: the chain must have gone back then.
    void_after_micros: u64,
    /// How far a block's time may be behind ours, in seconds, if that is judged.
    age_max_secs: Option<u64>,
}

impl Floor {
    pub(super) const fn new(void_after_micros: u64, age_max_secs: Option<u64>) -> Self {
        Self { newest: None, met_micros: 0, void_after_micros, age_max_secs }
    }

    /// Why an answer about this block does not count, if it does not.
    pub(super) fn accepts(&self, date: Date, now_micros: u64, unix_secs: u64) -> Result<(), ReadError> {
        let Date { timestamp, number } = date;
        let is_off =
            |max| timestamp.saturating_add(max) < unix_secs || timestamp > unix_secs + AHEAD_SECS_MAX;
        if self.age_max_secs.is_some_and(is_off) {
            let age_secs = unix_secs.wrapping_sub(timestamp).cast_signed();
            return Err(ReadError::HeadTime { number, age_secs });
        }
        match self.valid(now_micros) {
            Some(newest) if date < newest => Err(ReadError::Behind { number, newest: newest.number }),
            Some(_) | None => Ok(()),
        }
    }

    /// An answer about this block counted.
    pub(super) fn met(&mut self, date: Date, now_micros: u64) {
        self.newest = self.valid(now_micros).max(Some(date));
        self.met_micros = now_micros;
    }

    fn valid(&self, now_micros: u64) -> Option<Date> {
        self.newest.filter(|_| now_micros.saturating_sub(self.met_micros) < self.void_after_micros)
    }
}

/// The floor that the follower and all reads share.
pub(super) struct SharedFloor {
    floor: Mutex<Floor>,
    clock: Arc<dyn Clock>,
    /// Wakes who waits for a newer block.
    raised: Notify,
}

impl SharedFloor {
    pub(super) fn new(floor: Floor, clock: Arc<dyn Clock>) -> Self {
        Self { floor: Mutex::new(floor), clock, raised: Notify::new() }
    }

    /// The newest block that is known now.
    pub(super) fn newest(&self) -> Option<Date> {
        self.floor.lock().newest
    }

    /// See [`Floor::accepts`], for a read that began when this block was the newest: no more was known to whoever asked. A
    /// reorganization meanwhile counts for the answer.
    pub(super) fn accepts(&self, then: Option<Date>, date: Date) -> Result<(), ReadError> {
        let mut floor = self.floor.lock().clone();
        floor.newest = floor.newest.min(then);
        floor.accepts(date, self.clock.monotonic_micros(), self.clock.unix_seconds())
    }

    pub(super) fn met(&self, date: Date) {
        self.floor.lock().met(date, self.clock.monotonic_micros());
        self.raised.notify_waiters();
    }

    /// Waits until an answer has shown a newer block than this one.
    pub(super) async fn newer(&self, date: Date) {
        loop {
            let raised = self.raised.notified();
            if self.newest() > Some(date) {
                return;
            }
            raised.await;
        }
    }
}

/// The state that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// State of the latest block. Of this one, if it is known, the answer says whether it is of the same chain.
    Latest(Option<Block>),
    /// State after the block of an earlier answer: a second read of one profile.
    Dated(Date),
}

/// Reads the chain's state.
pub(super) struct StateReader {
    pub(super) pool: Arc<Pool>,
    pub(super) floor: Arc<SharedFloor>,
    pub(super) multicall: Address,
    /// There was no Multicall3 at its address, by the last answer of a creation.
    pub(super) lacks_multicall: AtomicBool,
    /// No node ran a creation when that was tried, and none has run one since.
    pub(super) lacks_creations: AtomicBool,
    /// The most gas that one call may burn.
    pub(super) gas_cap: u64,
    /// The gas that was taken where more was refused, and until when no more is named.
    pub(super) gas_taken: Mutex<(u64, u64)>,
}

/// The address of Multicall3, by its key.
const MULTICALL: ReadError = ReadError::NoCode("chain.multicall");

/// Gas that is enough for all that decides. Most nodes run a call with so much; they allow 30 million, 16.7 million, a block's limit.
const LITTLE_GAS: u64 = 15_000_000;

/// For how long less gas is named after a refusal, in microseconds. By then it may have been a fault, or another node's.
const GAS_REMEMBERED_MICROS: u64 = 600_000_000;

/// The code of a revert.
const REVERTED: i64 = 3;

/// A call to a contract, or a creation. Some nodes take no `null`, and some no `input`, the newer name of `data`.
pub(super) fn eth_call(to: Option<Address>, data: &Bytes, gas: u64, block: &Value) -> Call {
    #[derive(Serialize)]
    struct Called<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<Address>,
        data: &'a Bytes,
        #[serde(skip_serializing_if = "U64::is_zero")]
        gas: U64,
    }
    let called = Called { to, data, gas: U64::from(gas) };
    Call { method: "eth_call", params: json!([called, block]) }
}

/// The results of calls, with the block that they are about.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) at: ReadAt,
    pub(super) results: Vec<Result3>,
    endpoint: Arc<str>,
}

impl Answer {
    /// The fault of an error in the results. It is about the chain, and not about a node.
    pub(super) fn fault(&self, error: ReadError) -> ReadFault {
        error.at(Arc::clone(&self.endpoint), "eth_call")
    }

    /// The results of each of these, which are of the same number, as `decode` understands them.
    pub(super) fn each<A, T>(
        &self,
        of: impl ExactSizeIterator<Item = A>,
        decode: impl Fn(A, &mut std::iter::Cloned<std::slice::Iter<'_, Result3>>) -> Result<T, ReadError>,
    ) -> Vec<Result<T, ReadFault>> {
        let results = self.results.chunks((self.results.len() / of.len().max(1)).max(1));
        let read = of.zip(results).map(|(one, results)| decode(one, &mut results.iter().cloned()));
        read.map(|read| read.map_err(|error| self.fault(error))).collect()
    }
}

impl StateReader {
    /// The results of these calls.
    pub(super) async fn read(
        &self,
        (at, input): (At, Input),
        deadline: u64,
        calls: &[Call3],
    ) -> Result<Answer, ReadFault> {
        let followed = if let At::Latest(Some(block)) = at { block.number } else { 0 };
        let through = (!self.lacks_multicall.load(Relaxed))
            .then(|| dated_call(calls.to_vec(), Some(self.multicall), followed));
        let to = |absent| (Some((self.multicall, absent)), true, calls.len());
        if let Some(data) = &through {
            match self.ask(deadline, (at, input), data, to(MULTICALL)).await {
                Err(fault) if *fault.error == MULTICALL => {}
                answered => return answered,
            }
        }
        // No proof: a node of another chain, or one that syncs, says the same. The creation's answer is dated, and looks too.
        let look = call(self.multicall, &getChainIdCall {});
        let data = dated_call(calls.iter().cloned().chain([look]).collect(), None, followed);
        let mut answer = match self.ask(deadline, (at, input), &data, (None, true, calls.len() + 1)).await {
            // Then only a node that has it can answer, and that may be another one.
            Err(fault)
                if is_refused(&fault)
                    && let Some(data) = &through =>
            {
                let others = self.ask(deadline, (at, input), data, to(ReadError::NoCreation)).await;
                return others.map_err(|_| fault);
            }
            answered => answered?,
        };
        let is_absent = answer.results.pop().is_some_and(|look| look.success && look.returnData.is_empty());
        if !self.lacks_multicall.swap(is_absent, Relaxed) && is_absent {
            tracing::info!("there is no contract at chain.multicall: profiles are read without it");
        }
        Ok(answer)
    }

    /// The same at the latest block, with nobody's input.
    pub(super) async fn read_latest(&self, calls: &[Call3]) -> Result<Answer, ReadFault> {
        self.read((At::Latest(None), Input::Ours), self.pool.deadline(), calls).await
    }

    /// The results, so many at least, of the init code of a creation that is never sent. It dates its answer by itself.
    pub(super) async fn create(
        &self,
        (at, deadline): (At, u64),
        code: &Bytes,
        least: usize,
    ) -> Result<Answer, ReadFault> {
        let answer = self.ask(deadline, (at, Input::Strangers), code, (None, false, least)).await?;
        self.lacks_creations.store(false, Relaxed);
        Ok(answer)
    }

    /// A creation of nothing but its date, which shows whether nodes run any.
    pub(super) async fn try_creation(&self) -> Result<(), ReadFault> {
        let latest = (At::Latest(None), self.pool.deadline());
        let tried = self.create(latest, &dated_call(Vec::new(), None, 0), 0).await;
        self.lacks_creations.store(tried.as_ref().is_err_and(is_refused), Relaxed);
        tried.map(drop)
    }

    /// How many agents go with one call, of which each needs so many inner calls of its id: without Multicall3 no more than
    /// EIP-3860 lets one have in code.
    pub(super) fn agents_max(&self, calls_each: usize) -> usize {
        const CREATION_BYTES_MAX: usize = 49_152;
        const CALL_BYTES: usize = 7 * 32;
        let calls_max = CREATION_BYTES_MAX.saturating_sub(SNAPSHOT_CODE.len() + 1_024) / CALL_BYTES;
        if self.lacks_multicall.load(Relaxed) { (calls_max / calls_each.max(1)).max(1) } else { usize::MAX }
    }

    /// A read of nothing but its date, which proves that a node of the chain answers.
    pub(super) async fn prove(&self, deadline: u64) -> Result<(), ReadFault> {
        self.read((At::Latest(None), Input::Ours), deadline, &[]).await.map(drop)
    }

    /// The gas that a call names; 0: none. What strangers write may take all that there is.
    pub(super) fn gas(&self, input: Input) -> u64 {
        let wanted = if input == Input::Strangers { self.gas_cap } else { self.gas_cap.min(LITTLE_GAS) };
        let (taken, until_micros) = *self.gas_taken.lock();
        if self.pool.now() < until_micros { wanted.min(taken) } else { wanted }
    }

    /// The answer that counts, with as much gas as nodes take: so many results at least. An address has the error of a node that has
    /// no code there.
    async fn ask(
        &self,
        deadline: u64,
        (at, input): (At, Input),
        data: &Bytes,
        (to, has_hashes, least): (Option<(Address, ReadError)>, bool, usize),
    ) -> Result<Answer, ReadFault> {
        let (newest, chain) = (self.floor.newest(), self.pool.chain_id);
        let block = match at {
            At::Latest(_) => json!("latest"),
            At::Dated(date) => json!(U64::from(date.number)),
        };
        let named = self.gas(input);
        let mut gas = named;
        loop {
            let request = [eth_call(to.as_ref().map(|(to, _)| *to), data, gas, &block)];
            let read = |answers: &mut Answers<'_>| {
                let data = match returned(answers, to.is_none()) {
                    Err(ReadError::NodeError { message, .. }) if gas > 0 && is_of_gas(&message) => {
                        return Err(ReadError::Gas(message));
                    }
                    data => data?,
                };
                if let (true, Some((_, absent))) = (data.is_empty(), &to) {
                    return Err(absent.clone());
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
                if results.len() < least {
                    return Err(TOO_FEW);
                }
                let is_followed = matches!(at, At::Latest(Some(block)) if dated.shows(&block));
                let at = ReadAt { date, before: dated.before(), is_followed };
                Ok(Answer { at, results, endpoint: answers.endpoint() })
            };
            match self.pool.ask(deadline, (&request, input), read).await {
                // Less, and in the end none: nodes take what they allow.
                Err(fault) if matches!(*fault.error, ReadError::Gas(_)) => {
                    gas = if gas > LITTLE_GAS { LITTLE_GAS } else { 0 };
                }
                Err(fault) => return Err(fault),
                Ok(answer) => {
                    if gas < named {
                        *self.gas_taken.lock() = (gas, self.pool.now().saturating_add(GAS_REMEMBERED_MICROS));
                    }
                    if matches!(at, At::Latest(_)) {
                        self.floor.met(answer.at.date);
                    }
                    return Ok(answer);
                }
            }
        }
    }
}

/// True when nodes answered that they don't run a creation.
pub(super) fn is_refused(fault: &ReadFault) -> bool {
    matches!(*fault.error, ReadError::NoCreation | ReadError::NodeError { .. })
}

/// True if a node's error says that a call names too much gas, and not that it had too little.
fn is_of_gas(message: &str) -> bool {
    let text = message.to_ascii_lowercase();
    text.contains("gas")
        && !["out of gas", "outofgas", "too low", "required"].iter().any(|little| text.contains(little))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::chain::tests::results::{returned, reverted, word};
    use crate::ports::simulated::SimulatedClock;

    const NOW: u64 = 1_700_000_000;

    fn date(timestamp: u64, number: u64) -> Date {
        Date { timestamp, number }
    }

    #[test]
    fn an_answer_counts_that_is_not_older_by_time_or_by_number_in_the_same_second() {
        let mut floor = Floor::new(u64::MAX, None);
        floor.met(date(NOW, 100), 1);
        for (timestamp, number, counts) in
            [(NOW, 100, true), (NOW, 101, true), (NOW, 99, false), (NOW - 1, 101, false), (NOW + 1, 99, true)]
        {
            assert_eq!(
                floor.accepts(date(timestamp, number), 1, NOW).is_ok(),
                counts,
                "{timestamp} {number}"
            );
        }
        // A number that was too high is not the floor for ever.
        floor.met(date(NOW, 1_000_000), 1);
        floor.met(date(NOW + 1, 101), 1);
        assert!(floor.accepts(date(NOW + 1, 101), 1, NOW).is_ok());
    }

    #[test]
    fn a_block_that_is_too_old_or_ahead_of_our_clock_does_not_count() {
        let floor = Floor::new(u64::MAX, Some(600));
        for (timestamp, counts) in
            [(NOW - 601, false), (NOW - 600, true), (NOW + 30, true), (NOW + 31, false)]
        {
            let accepted = floor.accepts(date(timestamp, 1), 1, NOW);
            assert_eq!(accepted.is_ok(), counts, "{timestamp}");
            assert!(counts || matches!(accepted, Err(ReadError::HeadTime { .. })));
        }
        assert!(Floor::new(u64::MAX, None).accepts(date(1, 1), 1, NOW).is_ok(), "not judged");
    }

    #[test]
    fn a_floor_is_void_when_nothing_met_it_for_long_and_not_when_the_read_alone_is_old() {
        let clock = Arc::new(SimulatedClock::new(NOW));
        let floor = SharedFloor::new(Floor::new(5_000_000, None), clock.clone());
        floor.met(date(NOW, 100));
        let read = floor.newest();
        clock.advance_secs(4);
        floor.met(date(NOW, 100));
        clock.advance_secs(4);
        assert!(floor.accepts(read, date(NOW, 99)).is_err());
        clock.advance_secs(1);
        assert!(floor.accepts(read, date(NOW, 99)).is_ok());
    }

    #[test]
    fn arbitrums_own_number_counts_and_elsewhere_that_of_the_call() {
        for (last, number) in
            [(returned(word(900)), 900), (reverted(Vec::new()), 7), (returned(Vec::new()), 7)]
        {
            let mut results: Vec<Result3> = [1, 7, NOW].map(|date| returned(word(date))).into();
            results.extend([returned(word(5)), last]);
            let (dated, values) = read_dated(&aggregate3Call::abi_encode_returns(&results), false).unwrap();
            assert_eq!((dated.chain_id, dated.date, values.len()), (1, date(NOW, number), 1));
        }
    }
}
