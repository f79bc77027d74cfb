//! Answers that prove their age: each read is one call that also returns chain id, number and time of the block it ran
//! on. Which answers count is decided here, and nowhere by what a node said before. Pure.
//!
//! The calls go through Multicall3, or, where there is none, through the init code of a creation that is never sent
//! (`contracts/Snapshot.sol`). Both return the same.

use std::sync::{Arc, LazyLock};

use alloy::primitives::{Address, Bytes, U256, address};
use alloy::sol;
use alloy::sol_types::abi::AbiDecoderConfig;
use alloy::sol_types::{SolCall, SolValue};
use parking_lot::Mutex;
use serde_json::Value;

use crate::chain::fault::ReadError;
use crate::chain::pool::ANSWER_BYTES_MAX;
use crate::ports::clock::Clock;

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

    /// Arbitrum's system contract.
    function arbBlockNumber() external view returns (uint256);
}

/// Arbitrum's `block.number` is the L1's, so its own is asked for too; elsewhere nothing answers here.
const ARB_SYS: Address = address!("0x0000000000000000000000000000000000000064");

/// How many results stand before those of the caller's calls.
const DATES: usize = 4;

/// In the ABI a short answer can point to one long text a thousand times. So what is decoded of an answer is bounded too.
pub(super) const DECODING: AbiDecoderConfig = AbiDecoderConfig::new().memory_limit(2 * ANSWER_BYTES_MAX);

/// The compiled form of `contracts/Snapshot.sol`.
static SNAPSHOT_CODE: LazyLock<Bytes> = LazyLock::new(|| {
    let artifact: Value =
        serde_json::from_str(include_str!("../../contracts/artifacts/Snapshot.json")).unwrap_or_default();
    artifact.get("bytecode").and_then(|code| code.as_str()?.parse().ok()).unwrap_or_default()
});

/// The block that an answer is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Date {
    pub(super) number: u64,
    /// In seconds since 1970.
    pub(super) timestamp: u64,
}

/// The call data for these calls, with those that date the answer in front; to be sent to `multicall`, or as a creation.
pub(super) fn dated_call(calls: Vec<Call3>, multicall: Option<Address>) -> Bytes {
    let call = |target, data: Vec<u8>| Call3 { target, allowFailure: true, callData: data.into() };
    let arb_sys = call(ARB_SYS, arbBlockNumberCall {}.abi_encode());
    let Some(multicall) = multicall else {
        let calls: Vec<Call3> = std::iter::once(arb_sys).chain(calls).collect();
        return [SNAPSHOT_CODE.as_ref(), &(calls,).abi_encode_params()].concat().into();
    };
    let dates = [
        call(multicall, getChainIdCall {}.abi_encode()),
        call(multicall, getBlockNumberCall {}.abi_encode()),
        call(multicall, getCurrentBlockTimestampCall {}.abi_encode()),
        arb_sys,
    ];
    aggregate3Call { calls: dates.into_iter().chain(calls).collect() }.abi_encode().into()
}

/// The chain id, the block and the results of the calls in what they returned.
pub(super) fn read_dated(data: &[u8]) -> Result<(u64, Date, Vec<Result3>), ReadError> {
    let undated = ReadError::Unintelligible("it does not say which block it is about");
    let Ok(mut results) = aggregate3Call::abi_decode_returns_with_config(data, DECODING) else {
        return Err(undated);
    };
    let values = results.split_off(DATES.min(results.len()));
    let dates: Vec<Option<u64>> = results.iter().map(number).collect();
    let &[Some(chain_id), Some(number), Some(timestamp), arb_number] = dates.as_slice() else {
        return Err(undated);
    };
    Ok((chain_id, Date { number: arb_number.unwrap_or(number), timestamp }, values))
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
    /// How far a block's time may be from ours, in seconds, if that is judged.
    age_max_secs: Option<u64>,
}

impl Floor {
    pub(super) const fn new(void_after_micros: u64, age_max_secs: Option<u64>) -> Self {
        Self { newest: None, met_micros: 0, void_after_micros, age_max_secs }
    }

    /// Why an answer about this block does not count, if it does not.
    pub(super) fn accepts(&self, date: Date, now_micros: u64, unix_secs: u64) -> Result<(), ReadError> {
        let Date { number, timestamp } = date;
        if self.age_max_secs.is_some_and(|max| unix_secs.abs_diff(timestamp) > max) {
            let age_secs = unix_secs.wrapping_sub(timestamp).cast_signed();
            return Err(ReadError::HeadTime { number, age_secs });
        }
        match self.valid(now_micros) {
            // A later time with a lower number is a chain whose blocks count otherwise than its calls say.
            Some(newest) if number < newest.number && timestamp <= newest.timestamp => {
                Err(ReadError::Behind { number, newest: newest.number })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The same where what is known is of a chain that is no more.
    pub(super) const fn after_reorganization(&self) -> Self {
        Self { newest: None, ..*self }
    }

    /// An answer about this block counted.
    pub(super) fn met(&mut self, date: Date, now_micros: u64) {
        let newest = self.valid(now_micros).unwrap_or(date);
        let number = newest.number.max(date.number);
        self.reset(Date { number, timestamp: newest.timestamp.max(date.timestamp) }, now_micros);
    }

    /// The chain was reorganized: this is its head now.
    pub(super) const fn reset(&mut self, date: Date, now_micros: u64) {
        self.newest = Some(date);
        self.met_micros = now_micros;
    }

    fn valid(&self, now_micros: u64) -> Option<Date> {
        self.newest.filter(|_| now_micros.saturating_sub(self.met_micros) < self.void_after_micros)
    }
}

/// The floor that the follower and all reads share. A read takes a copy when it begins: no more was known to whoever asked.
pub(super) struct SharedFloor {
    floor: Mutex<Floor>,
    clock: Arc<dyn Clock>,
}

impl SharedFloor {
    pub(super) fn new(floor: Floor, clock: Arc<dyn Clock>) -> Self {
        Self { floor: Mutex::new(floor), clock }
    }

    pub(super) fn now(&self) -> Floor {
        self.floor.lock().clone()
    }

    /// See [`Floor::accepts`], for a read that began with this floor. A reorganization meanwhile counts for the answer.
    pub(super) fn accepts(&self, then: &Floor, date: Date) -> Result<(), ReadError> {
        let (now, unix_secs) = (self.clock.monotonic_micros(), self.clock.unix_seconds());
        then.accepts(date, now, unix_secs).or_else(|_| self.now().accepts(date, now, unix_secs))
    }

    pub(super) fn met(&self, date: Date) {
        self.floor.lock().met(date, self.clock.monotonic_micros());
    }

    pub(super) fn reset(&self, date: Date) {
        self.floor.lock().reset(date, self.clock.monotonic_micros());
    }
}
