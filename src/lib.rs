//! Tiergate: verifies on-chain agents in front of an API.
//!
//! One pipeline with two listeners. In the order of the flow: [`wire`] makes credentials of requests, [`pipeline`] judges
//! them, [`chain`] and [`store`] are what it asks, and [`domain`] is what is true. `ARCHITECTURE.md` is the map.

pub mod cli;

mod admin;
mod api;
mod app;
#[cfg(feature = "dev-chain")]
mod dev;
mod gateway;
mod record;
mod serve;
mod supervision;

mod wire;

pub mod pipeline;

pub mod ports;

pub mod chain;
pub mod store;

pub mod config;
pub mod telemetry;

mod addresses;
mod assertion;
mod bots;
mod files;
mod panic_guard;
mod tls;

pub mod domain;
pub mod error;
mod fair_timeout;
mod http1;
mod http2;
mod mcp;
mod message_signature;
pub mod os;
mod sharded;
