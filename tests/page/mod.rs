//! Pages for people, in a real Chromium: the operator's page of the admin listener, and the documentation of the API.
//!
//! The service is the real program, with a chain, tenants and upstreams.

pub(crate) mod browser;
mod docs;
mod operator;
