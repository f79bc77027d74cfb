//! Tiergate: verifies on-chain agents in front of an API.

pub mod domain;
pub mod os;
pub mod ports;
