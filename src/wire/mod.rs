//! The contract as bytes: request bodies, answers, header names and THE error table. The only client-facing serde.
//!
//! Translates between HTTP and the pipeline's types; decides nothing.

pub(crate) mod answers;
pub(crate) mod bodies;
pub(crate) mod client_ip;
pub(crate) mod credentials;
pub(crate) mod discovery;
pub(crate) mod errors;
pub(crate) mod ext_authz;
pub(crate) mod grpc;
pub(crate) mod other_sites;
pub(crate) mod pages;
pub(crate) mod received;
pub(crate) mod request_id;
pub(crate) mod results;
pub(crate) mod trace;
