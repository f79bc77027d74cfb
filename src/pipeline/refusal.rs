//! Why nobody was let through: the client's doing, or ours.

use std::error::Error;
use std::sync::Arc;

use crate::domain::denial::Denial;
use crate::ports::chain::ChainFault;
use crate::ports::clock::NoEntropy;
use crate::ports::store::StoreFault;

/// A request that was not let through.
#[derive(Debug, Clone)]
pub enum Refusal {
    /// The request was denied: a verdict.
    Denied(Denial),
    /// The chain could not be read: a fault.
    Chain(ChainFault),
    /// The store failed: a fault.
    Store(StoreFault),
    /// No key could be minted: a fault.
    Entropy(NoEntropy),
    /// An operation that must be recorded could not be: a fault.
    Unrecorded(Unrecorded),
}

/// An operation was not done, because no line could be written about it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no line of the audit log can be written, so no key is changed: {0}")]
pub struct Unrecorded(pub Arc<dyn Error + Send + Sync>);

impl From<Unrecorded> for Refusal {
    fn from(fault: Unrecorded) -> Self {
        Self::Unrecorded(fault)
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl From<ChainFault> for Refusal {
    fn from(fault: ChainFault) -> Self {
        Self::Chain(fault)
    }
}

impl From<StoreFault> for Refusal {
    fn from(fault: StoreFault) -> Self {
        Self::Store(fault)
    }
}

impl From<NoEntropy> for Refusal {
    fn from(fault: NoEntropy) -> Self {
        Self::Entropy(fault)
    }
}
