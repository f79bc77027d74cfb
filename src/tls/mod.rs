//! Certificates: which one a client of a host is shown, and what is shown and believed toward upstreams; and
//! keys that sign.
//!
//! Everything is read from PEM files when it is asked for, all problems are named at once, and nothing here watches files
//! or knows the listeners. Loading blocks on the disk. Private keys appear in no `Debug`.

pub(crate) mod certificates;
pub(crate) mod listener;
pub(crate) mod loaded_files;
pub(crate) mod signing;
pub(crate) mod upstream;

pub(crate) mod pem;

#[cfg(test)]
pub(crate) mod fixture;
