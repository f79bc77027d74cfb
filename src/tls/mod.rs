//! Certificates: which one a client of a host is shown, and what is shown and believed toward upstreams; and
//! keys that sign.
//!
//! Everything is read from PEM files when it is asked for, all problems of one pair are named at once, and nothing here watches
//! files or knows the listeners. Loading blocks on the disk. Private keys appear in no `Debug`.

pub(crate) mod certificates;
pub(crate) mod listener;
mod loaded_files;
mod signing;
mod upstream;

pub(crate) mod pem;

#[cfg(test)]
pub(crate) mod fixture;

pub(crate) use certificates::{Certificates, Shown};
pub(crate) use listener::{Protocols, ServerTls};
pub(crate) use loaded_files::{FileLoader, LoadedFiles};
pub(crate) use signing::{PublicKey, SigningKeys};
pub(crate) use upstream::UpstreamIdentity;
