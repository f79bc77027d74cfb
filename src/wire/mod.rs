//! The contract as bytes: request bodies, answers, header names and THE error table. The only client-facing serde.
//!
//! Translates between HTTP and the pipeline's types; decides nothing.

pub mod answers;
pub mod bodies;
pub mod client_ip;
pub mod console;
pub mod credentials;
pub mod discovery;
pub mod errors;
pub mod ext_authz;
pub mod grpc;
pub mod headers;
pub mod other_sites;
pub mod pages;
pub mod received;
pub mod request_id;
pub mod results;
pub mod trace;
