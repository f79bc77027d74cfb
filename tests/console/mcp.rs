//! "Try it" before a server of MCP.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use alloy::primitives::U256;
use serde_json::Value;
use toml::toml;

use super::stage::{Stage, wallet};
use crate::page::browser::Browser;
use crate::support::process::{Process, free_port, own_ip};
use crate::support::signing::ALICE;
use crate::support::time::{SOON, until};
use crate::support::{chain::Chain, service::Service, settings::Settings, skip::skip};

/// The stake of tier 1.
const BRONZE: u128 = 1_000_000_000_000_000_000_000;

/// A server of the official SDK, with sessions. It takes nothing before one is begun, and begins one.
const SERVER: &str = r#"
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const sessions = {};

async function begin() {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => crypto.randomUUID(),
    onsessioninitialized: (id) => void (sessions[id] = transport),
    onsessionclosed: () => console.log("a session has ended"),
  });
  const server = new McpServer({ name: "weather", version: "1.0.0" });
  for (const name of ["search", "billing_pay"]) server.registerTool(name, {}, async () => ({ content: [] }));
  await server.connect(transport);
  return transport;
}

const app = createMcpExpressApp();
app.all("/mcp", async (request, response) => {
  const transport = sessions[request.headers["mcp-session-id"]] ?? (await begin());
  await transport.handleRequest(request, response, request.body);
});
app.listen(Number(process.argv.at(-1)), "127.0.0.1");
"#;

#[test]
fn a_key_is_tried_at_an_endpoint_of_mcp_by_a_list_of_its_tools() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
    if !tools.join("node_modules/@modelcontextprotocol/sdk").exists() {
        return skip("MCP's SDK for TypeScript");
    }
    let Some(mut browser) = Browser::start() else { return };
    browser.command("wallet", wallet(&[ALICE]));
    let folder = tempfile::tempdir().unwrap();
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free_port(own_ip()).port());
    let script = "cd \"$1\" && exec node --input-type=module -e \"$2\" -- \"$3\"";
    let arguments = ["-c", script, "sh", tools.to_str().unwrap(), SERVER, &address.port().to_string()];
    let server = Process::start("sh".as_ref(), &arguments.map(str::to_owned), &folder.path().join("log"), "");
    until("the server of MCP listens", SOON, || {
        assert_eq!(server.exit_code(), None, "{}", server.log());
        std::net::TcpStream::connect(address).ok()
    });

    let chain = Chain::dev();
    let agent = chain.mint(ALICE, "ipfs://card");
    chain.stake(agent, U256::from(BRONZE));
    let (gateway, upstream) = (free_port(own_ip()), address.to_string());
    let mut tenant = toml! {
        id = "mcp"
        hosts = ["*"]
        host_header = "upstream"
        cors = { origins = ["*"] }
        [[routes]]
        path = "/mcp"
        tools = ["billing_*"]
        min_tier = 3
        [[routes]]
        path = "/mcp"
        mcp = true
    };
    tenant.insert("upstreams".to_owned(), vec![upstream].into());
    let settings = Settings::new(chain.node, &chain.contracts)
        .set("tiers.requests_per_minute", vec![60; 4])
        .set("console.enabled", true)
        .set("console.gateway_url", format!("http://{gateway}"))
        .set("console.sample_path", "/mcp")
        .set("console.sample_mcp", true)
        .set("listen.gateway", vec![gateway.to_string()])
        .set("tenants", vec![tenant]);
    let mut stage = Stage::over(browser, Service::start(settings), chain);
    stage.gateway = gateway;
    stage.open(&agent.to_string());
    stage.connect();
    stage.ask("#generate");
    stage.sign();
    let key = stage.key();
    stage.try_key(&key.replace(&key[12..20], "00000000"), "401");
    stage.text("try-problem", "key");
    stage.try_key(&key, "200");
    // What the agent's tier may call.
    let body = stage.browser.until("document.getElementById('try-body').textContent");
    let message: Value = serde_json::from_str(body.as_str().unwrap()).unwrap();
    let tools = message["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["search"]);
    until("the server's session ends", SOON, || server.log().contains("a session has ended").then_some(()));
    // The lines for an assistant.
    let shown = "[...document.querySelectorAll('#snippets pre')].at(-1).textContent";
    let shown: Value = serde_json::from_str(stage.browser.until(shown).as_str().unwrap()).unwrap();
    let own = &shown["mcpServers"][gateway.ip().to_string()];
    assert_eq!(own["url"], format!("http://{gateway}/mcp"));
    assert_eq!(own["headers"]["X-API-Key"], "${TIERGATE_API_KEY}");
    stage.has_kept_to_itself();
}
