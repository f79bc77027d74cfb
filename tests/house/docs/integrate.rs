//! `scripts/integrations` runs examples/integrate beside a `tiergate-dev`.

use std::process::Command;

use super::root;
use crate::loopback;
use crate::skip::skip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tiergate");

/// Bound for the page, on a machine that is busy with other things.
const PAGE_SECONDS: &str = "1100";

#[test]
fn the_examples_run_over_the_packed_clients_and_print_what_their_page_says() {
    let tools = [
        "servers/integrations/bin/python",
        "servers/python-clients/bin/python",
        "node_modules/@modelcontextprotocol/sdk",
    ];
    for path in tools.map(|tool| format!("tools/{tool}")) {
        if !root().join(&path).exists() {
            return skip(&path);
        }
    }
    let ip = loopback::own_ip().to_string();
    let output = Command::new("timeout")
        .args(["--kill-after=30", PAGE_SECONDS, "scripts/integrations", PROGRAM, "--ip", &ip])
        .current_dir(root())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (status, out, err) = (output.status, text(&output.stdout), text(&output.stderr));
    assert!(status.success(), "{status} (124: not within {PAGE_SECONDS} s)\n{out}{err}");
    // The page has not lost its blocks.
    assert!(out.matches("ok ").count() >= 16, "{out}");
}
