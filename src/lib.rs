//! Tiergate: verifies on-chain agents in front of an API.

pub mod ports;
