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
    for (url, name, rest, problem) in [
        ("https://node.example:444", "x", value, "url: is https://node.example:444, where no node is"),
        ("https://node.example/SECRET", "x", value, "url: has more than https://node.example"),
        ("https://SECRET@node.example", "x", value, "url: has more than https://node.example"),
        ("https://node.example?SECRET", "x", value, "url: has more than https://node.example"),
        ("SECRET", "x", value, "url: is not a URL"),
        (right, "", value, "name: is \"\"; write a header's name"),
        (right, "a b", value, "name: is \"a b\"; write a header's name"),
        (right, "Host", value, "name: is \"Host\", which says how"),
        (right, "content-type", value, "name: is \"content-type\", which says how"),
        (right, "x", "value = \"SEC\\nRET SECRET\"", "value: can't be sent"),
        (right, "x", "value = \"\"", "value: can't be sent"),
        (right, "x", "", "value: is missing; write value or value_file"),
        (right, "x", "value = \"SECRET\"\nvalue_file = \"f\"", "value: stands beside value_file; write one"),
        (right, "x", "value_file = \"\"", "value_file: is \"\"; write the path of a file"),
    ] {
        let text = header(url, name, rest);
        let found = problems(&file(&text), &[]);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with(&format!("chain.rpc_headers[1].{problem}")), "{text}: {found:?}");
        assert!(!found[0].contains("SECRET"), "{found:?}");
    }
    let found = problems(&file(&(header(right, "x", value) + &header(right, "X", value))), &[]);
    assert_eq!(found, ["chain.rpc_headers[2].name: is \"x\" a second time for this url"]);
}
