//! What the pipeline needs from outside, in the domain's verbs. No implementation is known here.

mod chain;
mod clock;
#[cfg(test)]
pub mod simulated;
mod store;

pub use chain::{Asked, AskedHolders, Asker, Chain, ChainFault, ChainRead, Parts};
pub use clock::{Clock, Entropy, NoEntropy, micros};
pub use store::{
    Admission, Budget, KeyBudget, KeyChange, KeyChanged, KeyOwner, KeySeen, MadeKey, NewKey, NonceRefused,
    Proof, Reply, RouteScope, Scope, Store, StoreFault,
};
