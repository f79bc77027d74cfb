//! Why nobody was let through: the client's doing, or ours.

use std::{error::Error, sync::Arc};

use crate::domain::Denial;
use crate::ports::{ChainFault, NoEntropy, StoreFault};

/// A request that was not let through.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// The request was denied: a verdict.
    #[error("denied")]
    Denied(Denial),
    /// The chain could not be read: a fault.
    #[error(transparent)]
    Chain(#[from] ChainFault),
    /// The chain could not be read, so nobody knows who signed a request: a fault.
    #[error(transparent)]
    Unverified(ChainFault),
    /// The store failed: a fault.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// No key could be minted: a fault.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// An operation that must be recorded could not be: a fault.
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
}

/// An operation was not done, because no line could be written about it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no line of the audit log can be written, so no key is changed: {0}")]
pub struct Unrecorded(pub Arc<dyn Error + Send + Sync>);

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}
