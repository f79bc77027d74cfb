//! The relay without an upstream's or a client's program.

mod driver;
mod exchange;
