//! One check for each fuzz target. A check panics where we and another reader read the same bytes differently.

// The gateway names it by this path.
extern crate self as alloy;
pub use alloy_primitives as primitives;

#[allow(unused_imports)]
#[expect(dead_code, reason = "heads and chunks are read here, and nothing is written")]
#[path = "../../src/http1/mod.rs"]
mod http1;

#[path = "../../src/serve/proxy_header.rs"]
mod proxy_header;

#[allow(dead_code)]
#[path = "../../src/wire/ext_authz.rs"]
mod ext_authz;

#[allow(dead_code, unused_imports)]
#[path = "../../src/message_signature/mod.rs"]
mod message_signature;

#[allow(dead_code, unused_imports)]
#[path = "../../src/mcp/mod.rs"]
mod mcp;

#[allow(dead_code)]
#[path = "../../src/domain/mcp.rs"]
mod mcp_calls;

#[allow(dead_code)]
#[path = "../../src/domain/bot.rs"]
mod bot;

#[allow(dead_code)]
#[path = "../../src/domain/host.rs"]
mod host;

#[allow(dead_code)]
#[path = "../../src/domain/freshness.rs"]
mod freshness;

#[allow(dead_code)]
#[path = "../../src/domain/nonce.rs"]
mod nonce;

#[allow(dead_code)]
#[path = "../../src/domain/signature.rs"]
mod signature;

#[allow(dead_code)]
#[path = "../../src/domain/signed_message.rs"]
mod signed_message;

#[allow(dead_code)]
#[path = "../../src/domain/uint256.rs"]
mod uint256;

#[allow(unused_imports)]
mod domain {
    pub(crate) use crate::mcp_calls as mcp;
    pub(crate) use crate::{bot, freshness, host, nonce, signature, uint256};
    pub(crate) use crate::{
        bot::*, freshness::*, host::*, mcp_calls::*, nonce::*, signature::*, signed_message::*,
    };
}

/// The parts of messages to gateways. No target makes one.
mod wire {
    pub mod answers {
        pub type Answer = http::Response<Vec<u8>>;
    }
}

mod pipeline {
    pub mod permit {
        pub enum Permit {}
        pub struct Tier;
        pub struct Allowance {
            pub limit: u32,
        }

        impl Permit {
            pub fn agent(&self) -> u64 {
                match *self {}
            }

            pub fn tier(&self) -> Tier {
                match *self {}
            }

            pub fn allowance(&self) -> Allowance {
                match *self {}
            }
        }

        impl Tier {
            pub fn number(&self) -> u8 {
                0
            }
        }
    }
}

pub mod answer_head;
pub mod check_request;
pub mod chunks;
pub mod messages;
pub mod proxy_headers;
pub mod request_head;
pub mod signatures;
pub mod original_parts;

mod hyper_reads;

use http1::fields::Span;

/// The fields of a head: name and value.
type Texts<'a> = Vec<(&'a [u8], &'a [u8])>;

fn ours<'a>(head: &'a [u8], spans: &[Span]) -> Texts<'a> {
    spans.iter().map(|span| (&head[span.name.clone()], &head[span.value.clone()])).collect()
}

fn flat(fields: Texts<'_>) -> Vec<Vec<u8>> {
    fields.into_iter().flat_map(|(name, value)| [name.to_vec(), value.to_vec()]).collect()
}

/// How a body ends, as a word.
fn end_of(body: http1::Body) -> Vec<u8> {
    match body {
        http1::Body::Length(length) => length.to_string().into_bytes(),
        http1::Body::Chunked => b"chunked".to_vec(),
        http1::Body::ToClose => b"close".to_vec(),
    }
}

fn of_httparse<'a>(headers: &[httparse::Header<'a>]) -> Texts<'a> {
    headers.iter().map(|header| (header.name.as_bytes(), header.value)).collect()
}

/// Asserts that a map holds the same fields: of each name the same values in the same order.
fn assert_same_fields(map: &http::HeaderMap, ours: &Texts<'_>) {
    assert_eq!(map.len(), ours.len());
    for name in map.keys() {
        let of_name = ours.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_str().as_bytes()));
        assert!(
            of_name.map(|(_, value)| *value).eq(map.get_all(name).iter().map(|value| value.as_bytes())),
            "{name}"
        );
    }
}
