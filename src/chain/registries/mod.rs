//! The sets of registries that agents can be read from.
//!
//! One file per set says all there is to know of it: which calls, how their results decode, which logs name whom, which
//! reverts mean "not minted". `standard` is the documented ABI. `logs` are the rules that hold for the logs of any set,
//! `token` is the token of a stake vault.

pub(super) mod logs;
pub(super) mod standard;
pub(super) mod token;
