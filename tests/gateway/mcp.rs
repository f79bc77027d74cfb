//! The official SDKs of MCP: their servers at their defaults behind the shipped example.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use crate::rig::behind::installed;
use crate::rig::case::{Case, cases};
use crate::rig::site::Site;
use crate::rig::stage::Stage;
use crate::rig::tenants::Tenant;
use crate::support::process::{Process, free_port};
use crate::support::skip::skip;
use crate::support::time::{SOON, until};
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] =
    cases![the_shipped_example_serves_the_servers_of_both_sdks_at_their_defaults,];

const PYTHON_SERVER: &str = r#"
import sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("weather")
server.run(transport="streamable-http", port=int(sys.argv[1]))
"#;

const NODE_SERVER: &str = r#"
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const app = createMcpExpressApp();
app.post("/mcp", async (request, response) => {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await new McpServer({ name: "weather", version: "1.0.0" }).connect(transport);
  await transport.handleRequest(request, response, request.body);
});
app.listen(Number(process.argv.at(-1)), "127.0.0.1");
"#;

/// How a program of an SDK is started; none if it is not installed.
fn program(is_python: bool, text: &str) -> Option<(PathBuf, Vec<String>)> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
    if is_python {
        let Some(python) = installed("integrations/bin/python") else {
            skip("MCP's SDK for Python");
            return None;
        };
        return Some((python, vec!["-c".to_owned(), text.to_owned()]));
    }
    if !tools.join("node_modules/@modelcontextprotocol/sdk").exists() {
        skip("MCP's SDK for TypeScript");
        return None;
    }
    // Packages are found from where it runs.
    let script = "cd \"$1\" && text=$2 && shift 2 && exec node --input-type=module -e \"$text\" -- \"$@\"";
    let tools = tools.to_str().unwrap();
    Some(("sh".into(), ["-c", script, "sh", tools, text].map(str::to_owned).to_vec()))
}

/// A server, and where it listens.
struct Server {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Server {
    fn start(is_python: bool) -> Option<Self> {
        let (file, mut arguments) = program(is_python, if is_python { PYTHON_SERVER } else { NODE_SERVER })?;
        let (folder, address) = (tempfile::tempdir().unwrap(), free_port(Ipv4Addr::LOCALHOST.into()));
        arguments.push(address.port().to_string());
        let process = Process::start(&file, &arguments, &folder.path().join("log"), "");
        until("the server of MCP listens", SOON, || {
            assert_eq!(process.exit_code(), None, "{}", process.log());
            std::net::TcpStream::connect(address).ok()
        });
        Some(Self { address, _process: process, _folder: folder })
    }
}

fn the_shipped_example_serves_the_servers_of_both_sdks_at_their_defaults(stage: &Stage) {
    let text = include_str!("../../conf/mcp-server.toml");
    for is_python in [true, false] {
        let Some(server) = Server::start(is_python) else { continue };
        let tenant = Tenant::first_of(text).set("upstreams", vec![server.address.to_string()]);
        let site = Site::of(stage).only(vec![tenant]).agent(1).start();
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" },
        });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let request = Request::new("POST", "mcp.example", "/mcp")
            .key(site.key())
            .with("Content-Type", "application/json")
            .with("Accept", "application/json, text/event-stream")
            .body(message.to_string().as_bytes());
        let answer = site.gateway.ask(&request);
        assert_eq!(answer.status, 200, "{is_python}: {}", answer.text());
        assert!(answer.text().contains("\"serverInfo\""), "{is_python}: {}", answer.text());
        let answer = site.gateway.ask(&Request::get("mcp.example", "/messages"));
        answer.error(405, "METHOD_NOT_ALLOWED");
        assert_eq!(answer.header("allow"), Some("POST"));
    }
}
