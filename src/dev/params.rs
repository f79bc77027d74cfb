//! Parameters and results of the methods of the development chain.
//!
//! Must not know the envelope, nor what any method does.

use alloy::eips::BlockId;
use alloy::primitives::Bytes;
use alloy::sol_types::{Panic, Revert, SolError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use crate::dev::evm::ExecutionError;
use crate::dev::ledger::{Block, Ledger, NoState};

/// A method's result, as JSON.
pub(super) type Answer = Result<Box<RawValue>, Fault>;

pub(super) fn json(value: &impl Serialize) -> Answer {
    Ok(to_raw_value(value)?)
}

/// A request's parameters, by position.
pub(super) struct Params<'a>(Vec<&'a RawValue>);

impl<'a> Params<'a> {
    pub(super) fn parse(params: Option<&'a RawValue>) -> Result<Self, Fault> {
        let Some(params) = params else { return Ok(Self(Vec::new())) };
        serde_json::from_str(params.get()).map(Self).map_err(Fault::invalid_params)
    }

    /// The parameter at a position; it must be there.
    pub(super) fn required<T: DeserializeOwned>(&self, index: usize) -> Result<T, Fault> {
        self.optional(index)?.ok_or_else(|| Fault::invalid_params(format!("parameter {index} is missing")))
    }

    /// The parameter at a position, unless it is absent or `null`.
    pub(super) fn optional<T: DeserializeOwned>(&self, index: usize) -> Result<Option<T>, Fault> {
        let Some(param) = self.0.get(index) else { return Ok(None) };
        serde_json::from_str(param.get())
            .map_err(|error| Fault::invalid_params(format!("parameter {index}: {error}")))
    }

    /// Refuses what a caller would otherwise believe to have had an effect.
    pub(super) fn none_from(&self, index: usize) -> Result<(), Fault> {
        if self.0.iter().skip(index).all(|param| param.get() == "null") {
            return Ok(());
        }
        Err(Fault::invalid_params(format!("parameter {index} is not supported")))
    }

    /// The block that a parameter names, the newest by default, if its state can still be read.
    pub(super) fn block<'l>(&self, index: usize, ledger: &'l Ledger) -> Result<&'l Block, Fault> {
        Ok(ledger.readable(self.optional(index)?.unwrap_or(BlockId::latest()))?)
    }
}

/// A JSON-RPC error.
#[derive(Debug, Serialize)]
pub(super) struct Fault {
    code: i64,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Bytes>,
}

impl Fault {
    pub(super) fn new(code: i64, why: impl ToString) -> Self {
        Self { code, message: why.to_string(), data: None }
    }

    pub(super) fn invalid_request(why: impl ToString) -> Self {
        Self::new(-32_600, format!("invalid request: {}", why.to_string()))
    }

    pub(super) fn invalid_params(why: impl ToString) -> Self {
        Self::new(-32_602, format!("invalid params: {}", why.to_string()))
    }

    pub(super) fn refused(why: impl ToString) -> Self {
        Self::new(-32_000, why)
    }
}

impl From<NoState> for Fault {
    fn from(error: NoState) -> Self {
        Self::refused(error)
    }
}

impl From<ExecutionError> for Fault {
    fn from(error: ExecutionError) -> Self {
        match error {
            ExecutionError::Reverted(data) => {
                let reason = revert_reason(&data).map(|reason| format!(": {reason}")).unwrap_or_default();
                Self { code: 3, message: format!("execution reverted{reason}"), data: Some(data) }
            }
            ExecutionError::Halted(_) | ExecutionError::Rejected(_) => Self::refused(error),
        }
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self::new(-32_603, format!("internal error: {error}"))
    }
}

/// Why a contract reverted, if it said so in one of the two standard ways.
fn revert_reason(data: &[u8]) -> Option<String> {
    let reason = Revert::abi_decode(data).map(|revert| revert.reason);
    reason.or_else(|_| Panic::abi_decode(data).map(|panic| panic.to_string())).ok()
}
