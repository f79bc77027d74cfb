//! The official SDKs of MCP: their servers at their defaults behind the shipped example, and their clients that look for a login.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;

use crate::rig::case::{Case, cases};
use crate::rig::{behind::installed, site::Site, stage::Stage, tenants::Tenant};
use crate::support::process::{Process, free_port};
use crate::support::time::{SOON, until};
use crate::support::{agents::unknown_key, skip::skip, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    the_shipped_example_serves_the_servers_of_both_sdks_at_their_defaults,
    clients_of_both_sdks_that_look_for_a_login_show_why_there_is_none,
    users_of_both_sdks_see_their_tools_and_read_why_one_is_refused,
];

/// How users get a key.
const PAGE: &str = "Ask the agent's owner for a key: https://keys.example/";

/// Where clients look for a login.
const LOGINS: [&str; 2] = ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"];

const PYTHON_SERVER: &str = r#"
import sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("weather")


@server.tool()
def search(text: str) -> str: return "found " + text


@server.tool()
def billing_pay() -> str: return "paid"


server.run(transport="streamable-http", port=int(sys.argv[1]))
"#;

const NODE_SERVER: &str = r#"
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const app = createMcpExpressApp();
app.post("/mcp", async (request, response) => {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  const server = new McpServer({ name: "weather", version: "1.0.0" });
  server.registerTool("search", { description: "Searches" }, async () => ({ content: [{ type: "text", text: "found rain" }] }));
  server.registerTool("billing_pay", { description: "Pays" }, async () => ({ content: [{ type: "text", text: "paid" }] }));
  await server.connect(transport);
  await transport.handleRequest(request, response, request.body);
});
app.listen(Number(process.argv.at(-1)), "127.0.0.1");
"#;

/// They say what they list, and what becomes of two calls, and of one until it is refused.
const NODE_CALLS: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, key] = process.argv.slice(-2);
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { "X-API-Key": key } } });
const client = new Client({ name: "agent", version: "1.0.0" });
try {
  await client.connect(transport);
  const { tools } = await client.listTools();
  console.log("tools:", ...tools.map((tool) => tool.name).sort());
  const found = await client.callTool({ name: "search", arguments: { text: "rain" } });
  console.log("search:", found.content[0].text);
  await client.callTool({ name: "billing_pay" }).catch((error) => console.log("pay:", error.message));
  for (;;) await client.callTool({ name: "search", arguments: { text: "rain" } });
} catch (error) {
  console.log("error:", error.message);
}
process.exit();
"#;

const PYTHON_CALLS: &str = r#"
import asyncio
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main(mode, url, key):
    async with httpx2.AsyncClient(headers={"X-API-Key": key}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            print("revision:", client.protocol_version)
            print("tools:", *sorted(tool.name for tool in (await client.list_tools()).tools))
            print("search:", (await client.call_tool("search", {"text": "rain"})).content[0].text, flush=True)
            try:
                await client.call_tool("billing_pay", {})
            except Exception as error:
                print("pay:", error)
            while True:
                await client.call_tool("search", {"text": "rain"})


def leaves(error):
    return [leaf for one in error.exceptions for leaf in leaves(one)] if isinstance(error, BaseExceptionGroup) else [error]


try:
    asyncio.run(main(*sys.argv[1:]))
except BaseException as error:
    print("error:", *leaves(error))
"#;

/// It has a key that nobody knows, and would go through OAuth.
const NODE_CLIENT: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const authProvider = {
  redirectUrl: "http://localhost/callback",
  clientMetadata: { redirect_uris: ["http://localhost/callback"], client_name: "agent" },
  clientInformation() {}, saveClientInformation() {}, tokens() {}, saveTokens() {},
  redirectToAuthorization() {}, saveCodeVerifier() {}, codeVerifier() { return ""; },
};
const [url, key] = process.argv.slice(-2);
const seen = [];
const asks = async (target, init) => {
  const answer = await fetch(target, init);
  seen.push(`${init?.method ?? "GET"} ${new URL(target).pathname} ${answer.status}`);
  return answer;
};
const headers = key === "-" ? {} : { "X-API-Key": key };
const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider, fetch: asks, requestInit: { headers } });
const error = await new Client({ name: "agent", version: "1.0.0" }).connect(transport).catch((error) => error);
console.log(seen.join("\n"));
console.log("message:", error?.message);
process.exit();
"#;

const PYTHON_CLIENT: &str = r#"
import asyncio
import sys

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata


class Storage:
    async def get_tokens(self): return None
    async def set_tokens(self, tokens): pass
    async def get_client_info(self): return None
    async def set_client_info(self, client_info): pass


async def nothing(*_): return None


async def saw(response):
    print(response.request.method, response.request.url.path, response.status_code)


async def main(url, key):
    metadata = OAuthClientMetadata(redirect_uris=["http://localhost/callback"], client_name="agent")
    auth = OAuthClientProvider(url, metadata, Storage(), nothing, nothing)
    headers = {} if key == "-" else {"X-API-Key": key}
    async with httpx2.AsyncClient(auth=auth, headers=headers, event_hooks={"response": [saw]}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode="legacy"):
            pass


def leaves(error):
    return [leaf for one in error.exceptions for leaf in leaves(one)] if isinstance(error, BaseExceptionGroup) else [error]


try:
    asyncio.run(main(*sys.argv[1:]))
except BaseException as error:
    print("message:", *leaves(error))
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
    }
}

fn clients_of_both_sdks_that_look_for_a_login_show_why_there_is_none(stage: &Stage) {
    let site = Site::of(stage).set("keys.public_url", "https://keys.example").start();
    // The metadata is had at a host that is named.
    let host = site.gateway.address.ip().to_string();
    site.gateway.put("mcp.toml", &Tenant::new("mcp", &host, site.upstream.address).text());
    site.gateway.reread("applied");
    let url = format!("http://{}/mcp", site.gateway.address);
    let unknown = unknown_key(63);
    for is_python in [true, false] {
        for key in ["-", &*unknown] {
            let Some((file, arguments)) =
                program(is_python, if is_python { PYTHON_CLIENT } else { NODE_CLIENT })
            else {
                continue;
            };
            let Output { stdout, stderr, .. } = Command::new("timeout")
                .arg("60")
                .arg(file)
                .args(arguments)
                .args([&*url, key])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&stdout);
            let about = format!("{said}{}", String::from_utf8_lossy(&stderr));
            let (seen, message) = said.split_once("message:").unwrap_or_else(|| panic!("{about}"));
            let looked: Vec<&str> =
                seen.lines().filter(|line| LOGINS.iter().any(|at| line.contains(at))).collect();
            assert!(!looked.is_empty() && looked.iter().all(|line| line.ends_with(" 404")), "{about}");
            if key == "-" {
                assert!(seen.contains("POST /register 404"), "{about}");
                assert!(message.contains("There is no OAuth here; give the client its"), "{about}");
                assert!(message.contains(PAGE), "{about}");
            }
        }
    }
}

/// Each server before each client, of whichever revision they speak.
fn users_of_both_sdks_see_their_tools_and_read_why_one_is_refused(stage: &Stage) {
    for is_python_server in [true, false] {
        let Some(server) = Server::start(is_python_server) else { continue };
        let site = Site::of(stage).set("tiers.requests_per_minute", vec![16; 4]);
        let site = site.set("keys.public_url", "https://keys.example").start();
        // The host that clients ask for.
        let host = site.gateway.address.ip().to_string();
        let tenant =
            Tenant::new("mcp", &host, server.address).set("host_header", "upstream").set("mcp", true);
        site.gateway.put("mcp.toml", &tenant.route("/mcp", "tools = ['billing_*']\nmin_tier = 2").text());
        site.gateway.reread("applied");
        let url = format!("http://{}/mcp", site.gateway.address);
        for client in ["auto", "legacy", "node"] {
            let is_node = client == "node";
            let Some((file, mut arguments)) =
                program(!is_node, if is_node { NODE_CALLS } else { PYTHON_CALLS })
            else {
                continue;
            };
            arguments.extend((!is_node).then(|| client.to_owned()));
            let say = |key: &str| {
                let run =
                    Command::new("timeout").arg("60").arg(&file).args(&arguments).args([&*url, key]).output();
                let Output { stdout, stderr, .. } = run.unwrap();
                format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
            };
            let key = stage.world().agent(1).generate(&site.gateway.service);
            let said = say(&key);
            // That for TypeScript shows the body whole.
            let expected = [
                "tools: search\n",
                "search: found rain\n",
                "pay: The agent's stake does not give it the tier that is required",
                "error: The rate limit is reached; try again in",
            ];
            for words in expected {
                let (begin, message) = words.split_once(' ').unwrap();
                let line = said.lines().find(|line| line.starts_with(begin));
                let is_read = line
                    .is_some_and(|line| line.contains(message.trim_end()) && (is_node || line.len() < 100));
                assert!(is_read, "{is_python_server} {client}: {words}\n{said}");
            }
            let said = say(&unknown_key(64));
            let why = "The API key is unknown, revoked or another agent's";
            assert!(
                said.contains(why) && said.contains(PAGE) && !said.contains("tools:"),
                "{is_python_server} {client}\n{said}"
            );
        }
    }
}
