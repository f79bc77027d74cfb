//! Headers for nodes: where they go, which may be set, and that no value shows up.

use std::path::PathBuf;

use super::{MINIMAL, parse, problems};
use crate::domain::{RpcHeader, SecretSource};

const NODES: &str = r#"["https://node.example/v3/key", "http://u:p@other.example:8545"]"#;

fn file(headers: &str) -> String {
    let nodes = format!("[chain]\nrpc_urls = {NODES}\n");
    MINIMAL.replace("[chain]\n", &nodes).replace("[chain.contracts]", &format!("{headers}[chain.contracts]"))
}

fn header(url: &str, name: &str, rest: &str) -> String {
    format!("[[chain.rpc_headers]]\nurl = {url:?}\nname = {name:?}\n{rest}\n")
}

fn headers(text: &str) -> Vec<RpcHeader<SecretSource>> {
    parse(&file(text), &[]).unwrap_or_else(|problems| panic!("{problems}")).fixed.chain.rpc_headers
}

// threat: Providers' keys in `rpcUrl`
#[test]
fn a_header_has_one_of_the_nodes_origins_a_name_and_a_value_that_is_not_shown_or_its_file() {
    let read = headers(
        &(header("https://node.example", "X-Api-Key", "value = \"SECRET\"")
            + &header("http://other.example:8545/", "authorization", "value_file = \"key.txt\"")),
    );
    assert_eq!((&*read[0].origin, &*read[0].name), ("https://node.example", "x-api-key"));
    assert!(!format!("{read:?} {read:#?}").contains("SECRET"));
    let SecretSource::Text(value) = &read[0].value else { panic!("{read:?}") };
    assert_eq!(value.reveal(), "SECRET");
    assert_eq!((&*read[1].origin, &*read[1].name), ("http://other.example:8545", "authorization"));
    assert_eq!(read[1].value, SecretSource::File(PathBuf::from("key.txt")));
}

#[test]
fn what_is_wrong_is_named_and_no_value_is_shown() {
    let right = "https://node.example";
    let value = "value = \"SECRET\"";
    for (text, problem) in [
        (
            header("https://node.example:444", "x", value),
            "chain.rpc_headers[1].url: is https://node.example:444, where no node is",
        ),
        (
            header("http://node.example", "x", value),
            "chain.rpc_headers[1].url: is http://node.example, where no node is",
        ),
        (
            header("https://node.example/SECRET", "x", value),
            "chain.rpc_headers[1].url: has more than https://node.example",
        ),
        (
            header("https://SECRET@node.example", "x", value),
            "chain.rpc_headers[1].url: has more than https://node.example",
        ),
        (
            header("https://node.example?SECRET", "x", value),
            "chain.rpc_headers[1].url: has more than https://node.example",
        ),
        (header("SECRET", "x", value), "chain.rpc_headers[1].url: is not a URL"),
        (header(right, "", value), "chain.rpc_headers[1].name: is \"\"; write a header's name"),
        (header(right, "a b", value), "chain.rpc_headers[1].name: is \"a b\"; write a header's name"),
        (header(right, "Host", value), "chain.rpc_headers[1].name: is \"Host\", which says how"),
        (
            header(right, "content-type", value),
            "chain.rpc_headers[1].name: is \"content-type\", which says how",
        ),
        (header(right, "Connection", value), "chain.rpc_headers[1].name: is \"Connection\", which says how"),
        (header(right, "te", value), "chain.rpc_headers[1].name: is \"te\", which says how"),
        (header(right, "x", "value = \"SEC\\nRET SECRET\""), "chain.rpc_headers[1].value: can't be sent"),
        (header(right, "x", "value = \" SECRET\""), "chain.rpc_headers[1].value: can't be sent"),
        (header(right, "x", "value = \"\""), "chain.rpc_headers[1].value: can't be sent"),
        (header(right, "x", ""), "chain.rpc_headers[1].value: is missing; write value or value_file"),
        (
            header(right, "x", "value = \"SECRET\"\nvalue_file = \"f\""),
            "chain.rpc_headers[1].value: stands beside value_file; write one of them",
        ),
        (
            header(right, "x", "value_file = \"\""),
            "chain.rpc_headers[1].value_file: is \"\"; write the path of a file",
        ),
        (
            header(right, "x", "value = \"SECRET\"\nvalues = 1"),
            "chain.rpc_headers[1].values: is not a known key",
        ),
        (
            header(right, "x", value) + &header(right, "X", value),
            "chain.rpc_headers[2].name: is \"x\" a second time for this url",
        ),
    ] {
        let found = problems(&file(&text), &[]);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with(problem), "{text}: {found:?}");
        assert!(!found[0].contains("SECRET"), "{found:?}");
    }
}
