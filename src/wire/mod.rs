//! The contract as bytes: request bodies, answers, header names and THE error table. The only client-facing serde.
//!
//! Translates between HTTP and the pipeline's types; decides nothing.

pub(crate) mod answers;
pub(crate) mod bodies;
pub(crate) mod client_ip;
pub(crate) mod credentials;
pub(crate) mod discovery;
mod errors;
mod ext_authz;
pub(crate) mod grpc;
pub(crate) mod other_sites;
pub(crate) mod pages;
mod received;
mod request_id;
pub(crate) mod results;
pub(crate) mod trace;

pub(crate) use answers::{Answer, JSON, NO_STORE, OF_AGENT, OF_CLIENT, QuotaHeaders};
pub(crate) use bodies::BODY_BYTES_MAX;
pub(crate) use credentials::SIGNATURE_HEADERS;
pub(crate) use discovery::{
    Discovery, ERC8128_PATH, KEY_SET_PATH, LocalRules, METADATA_PATH, RULES_PATH, ServiceRules, TenantRules,
};
pub(crate) use ext_authz::{Asked, CHECK, CheckRequest, CheckResponse, HeaderList};
pub(crate) use request_id::RequestIds;
pub(crate) use results::VerificationResults;
pub(crate) use trace::TRACESTATE;
