//! What the pipeline needs from outside, in the domain's verbs. No implementation is known here.

pub mod chain;
pub mod clock;
#[cfg(test)]
pub mod simulated;
pub mod store;
