//! The official SDKs of MCP: their servers at their defaults behind the shipped example, their clients that look for a login, and each client
//! before each server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;

use crate::rig::case::{Case, cases};
use crate::rig::{behind::installed, site::Site, stage::Stage, tenants::Tenant};
use crate::support::process::{Process, free_port, own_ip};
use crate::support::time::{SOON, until};
use crate::support::{agents::unknown_key, redis::Redis, skip::skip, wire::Request};

pub(crate) const CASES: &[Case] = cases![
    the_shipped_example_serves_the_servers_of_both_sdks_at_their_defaults,
    clients_of_both_sdks_that_look_for_a_login_show_why_there_is_none,
];

pub(crate) const OF_REDIS: &[Case] = cases![users_of_both_sdks_use_their_tools_and_read_why_one_is_refused];

/// How users get a key.
const PAGE: &str = "Ask the agent's owner for a key: https://keys.example/";

/// Where clients look for a login.
const LOGINS: [&str; 2] = ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"];

const PYTHON_SERVER: &str = r#"
import asyncio
import collections
import sys
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("weather")
stopped = collections.defaultdict(asyncio.Event)


@server.tool()
def search(text: str) -> str: return "found rain"


@server.tool()
def billing_pay(text: str) -> str: return "paid"


@server.tool()
async def count(text: str, ctx: Context) -> str:
    await ctx.report_progress(1, 2)
    await ctx.report_progress(2, 2)
    return "counted"


@server.tool()
async def hang(text: str, ctx: Context) -> str:
    try:
        await ctx.report_progress(1, 2)
        await asyncio.Event().wait()
    finally:
        stopped[text].set()


@server.tool()
async def stops(text: str) -> str:
    await stopped[text].wait()
    return "by the server too"


@server.tool()
async def change(text: str, ctx: Context) -> str:
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "changed"


server.run(transport="streamable-http", port=int(sys.argv[1]))
"#;

/// At every path.
const NODE_SERVER: &str = r#"
import { randomUUID } from "node:crypto";
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const says = (text) => ({ content: [{ type: "text", text }] });

async function progress(extra, progress) {
  const { progressToken } = extra._meta;
  await extra.sendNotification({ method: "notifications/progress", params: { progressToken, progress, total: 2 } });
}

function create() {
  const server = new McpServer({ name: "weather", version: "1.0.0" });
  let stop;
  const stopped = new Promise((resolve) => (stop = resolve));
  server.registerTool("search", {}, async () => says("found rain"));
  server.registerTool("billing_pay", {}, async () => says("paid"));
  server.registerTool("count", {}, async (extra) => {
    await progress(extra, 1);
    await progress(extra, 2);
    return says("counted");
  });
  server.registerTool("hang", {}, async (extra) => {
    extra.signal.addEventListener("abort", stop);
    await progress(extra, 1);
    await new Promise(() => {});
  });
  server.registerTool("stops", {}, async () => {
    await stopped;
    return says("by the server too");
  });
  server.registerTool("change", {}, async () => {
    server.sendToolListChanged();
    return says("changed");
  });
  return server;
}

const app = createMcpExpressApp();
const sessions = new Map();
app.use(async (request, response) => {
  let transport = sessions.get(request.headers["mcp-session-id"]);
  if (!transport) {
    const onsessioninitialized = (id) => void sessions.set(id, transport);
    transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
    await create().connect(transport);
  }
  await transport.handleRequest(request, response, request.body);
});
app.listen(Number(process.argv.at(-1)), "127.0.0.1");
"#;

/// Of the second generation, with sessions for older clients.
const SECOND_NODE_SERVER: &str = r#"
import { randomUUID } from "node:crypto";
import { serve } from "@hono/node-server";
import * as mcp from "@modelcontextprotocol/server";

const says = (text) => ({ content: [{ type: "text", text }] });
const stopped = new Map();

async function progress({ mcpReq }, progress) {
  const { progressToken } = mcpReq._meta;
  await mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: 2 } });
}

function create() {
  const server = new mcp.McpServer({ name: "weather", version: "1.0.0" });
  const register = (name, tool) => server.registerTool(name, { inputSchema: mcp.fromJsonSchema({ type: "object" }) }, tool);
  register("search", async () => says("found rain"));
  register("billing_pay", async () => says("paid"));
  register("count", async (_, context) => {
    await progress(context, 1);
    await progress(context, 2);
    return says("counted");
  });
  register("hang", async ({ text }, context) => {
    const { signal } = context.mcpReq;
    stopped.set(text, new Promise((resolve) => signal.addEventListener("abort", resolve)));
    await progress(context, 1);
    await new Promise(() => {});
  });
  register("stops", async ({ text }) => {
    await stopped.get(text);
    return says("by the server too");
  });
  register("change", async () => {
    handler.notify.toolsChanged();
    server.sendToolListChanged();
    return says("changed");
  });
  return server;
}

const handler = mcp.createMcpHandler(create, { legacy: "reject" });
const sessions = new Map();
async function fetch(request) {
  if (!(await mcp.isLegacyRequest(request))) return handler.fetch(request);
  let transport = sessions.get(request.headers.get("mcp-session-id"));
  if (!transport) {
    const onsessioninitialized = (id) => void sessions.set(id, transport);
    transport = new mcp.WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
    await create().connect(transport);
  }
  return transport.handleRequest(request);
}
serve({ fetch, port: Number(process.argv.at(-1)), hostname: "127.0.0.1" });
"#;

/// It says line by line what the user of each server reads with the client of either generation, and calls a tool once more at each
/// signal.
const NODE_CALLS: &str = r#"
import * as second from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [wrong, good, ...urls] = process.argv.slice(-5);
const say = (who, what, text) => console.log(`${who} ${what}: ${text}`);
const listChanged = "notifications/tools/list_changed";

// That of the second generation is an older client at its defaults.
const KINDS = [
  { of: { Client, StreamableHTTPClientTransport }, changed: ToolListChangedNotificationSchema, schema: [undefined] },
  { name: "second legacy", of: second, changed: listChanged, schema: [] },
  { name: "second auto", of: second, options: { versionNegotiation: { mode: "auto" } }, changed: listChanged, schema: [] },
];

async function connect(url, { of, options }, headers) {
  const client = new of.Client({ name: "agent", version: "1.0.0" }, options);
  await client.connect(new of.StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  return client;
}

// The second generation has the body here, whatever the message says.
const read = ({ message, data }) => `${message} ${data?.text}`;

async function calls(who, client, tool, what = tool) {
  const answer = client.callTool({ name: tool, arguments: { text: who } });
  say(who, what, await answer.then(({ content }) => content[0].text, read));
}

async function uses(url, kind) {
  const who = [new URL(url).pathname, kind.name ?? "first"].join(" ");
  const refused = (headers) => connect(url, kind, headers).then(() => "connected", read);
  say(who, "wrong key", await refused({ "X-API-Key": wrong }));
  say(who, "no key", await refused({}));
  const client = await connect(url, kind, { "X-API-Key": good });
  sessions.push([who, client]);
  say(who, "revision", client.getNegotiatedProtocolVersion?.());
  say(who, "tools", (await client.listTools()).tools.map((tool) => tool.name).sort().join(" "));
  await calls(who, client, "search");
  const call = (name, options) => client.callTool({ name, arguments: { text: who } }, ...kind.schema, options);
  const parts = [];
  await call("count", { onprogress: ({ progress }) => parts.push(progress) });
  say(who, "progress", parts.join(" "));
  const leaves = new AbortController();
  await call("hang", { signal: leaves.signal, onprogress: () => leaves.abort() }).catch(() => {});
  await calls(who, client, "stops");
  let hear;
  const heard = new Promise((resolve) => (hear = resolve));
  client.setNotificationHandler(kind.changed, () => hear(true));
  const isNew = client.getNegotiatedProtocolVersion?.() >= "2026-07-28";
  const stream = isNew ? await client.listen({ toolsListChanged: true }) : undefined;
  // The stream of an older one may begin later than the first call.
  do await call("change");
  while (!(await Promise.race([heard, new Promise((resolve) => setTimeout(resolve, 300))])));
  say(who, "heard", "a change");
  const trouble = [];
  client.onerror = (error) => trouble.push(read(error));
  await stream?.close();
  say(who, "closed", trouble.join(" ") || "without trouble");
  await calls(who, client, "billing_pay");
}

const sessions = [];
let signals = 0;
process.on("SIGUSR2", () => {
  signals += 1;
  for (const [who, client] of sessions) calls(who, client, "search", `signal ${signals}`);
});
await Promise.all(urls.flatMap((url) => KINDS.map((kind) => uses(url, kind))));
"#;

const PYTHON_CALLS: &str = r#"
import asyncio
import contextlib
import itertools
import signal
import sys
from urllib.parse import urlsplit

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ToolListChangedNotification


def say(who, what, *text): print(f"{who} {what}:", *text, flush=True)


def leaves(error):
    return [leaf for one in error.exceptions for leaf in leaves(one)] if isinstance(error, BaseExceptionGroup) else [error]


@contextlib.asynccontextmanager
async def connect(url, mode, headers, hear=None):
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300)) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode, message_handler=hear) as client:
            yield client


async def calls(who, client, tool, what=None):
    try:
        answer = (await client.call_tool(tool, {"text": who})).content[0].text
    except Exception as error:
        answer = error
    say(who, what or tool, answer)


async def uses(url, mode, wrong, good, signals):
    who = f"{urlsplit(url).path} {mode}"
    for what, headers in [("wrong key", {"X-API-Key": wrong}), ("no key", {})]:
        try:
            async with connect(url, mode, headers):
                say(who, what, "connected")
        except BaseException as error:
            say(who, what, *leaves(error))
    heard, parts = asyncio.Event(), asyncio.Queue()

    async def hear(message):
        if isinstance(message, ToolListChangedNotification):
            heard.set()

    async def progress(part, *_): parts.put_nowait(int(part))

    async with connect(url, mode, {"X-API-Key": good}, hear) as client:
        call = lambda tool, **options: client.call_tool(tool, {"text": who}, **options)
        say(who, "revision", client.protocol_version)
        say(who, "tools", *sorted(tool.name for tool in (await client.list_tools()).tools))
        await calls(who, client, "search")
        await call("count", progress_callback=progress)
        say(who, "progress", await parts.get(), await parts.get())
        hangs = asyncio.create_task(call("hang", progress_callback=progress))
        await parts.get()
        hangs.cancel()
        await calls(who, client, "stops")
        if client.protocol_version >= "2026-07-28":
            async with client.listen(tools_list_changed=True) as events:
                await call("change")
                async for _ in events:
                    break
        else:
            # Its stream may begin later than the first call.
            while not heard.is_set():
                await call("change")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(heard.wait(), 0.3)
        say(who, "heard", "a change")
        await calls(who, client, "billing_pay")
        for number in itertools.count(1):
            await signals.get()
            await calls(who, client, "search", f"signal {number}")


async def main(wrong, good, *urls):
    sessions = [(url, mode, asyncio.Queue()) for url in urls for mode in ("auto", "legacy")]
    signalled = lambda: [signals.put_nowait(None) for _, _, signals in sessions]
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, signalled)
    await asyncio.gather(*(uses(url, mode, wrong, good, signals) for url, mode, signals in sessions))


asyncio.run(main(*sys.argv[1:]))
"#;

/// Where each generation has a client and its transport.
const GENERATIONS: [&str; 2] = [
    "@modelcontextprotocol/sdk/client/index.js @modelcontextprotocol/sdk/client/streamableHttp.js",
    "@modelcontextprotocol/client @modelcontextprotocol/client",
];

/// It has a key that nobody knows, and would go through OAuth.
const NODE_CLIENT: &str = r#"
const authProvider = {
  redirectUrl: "http://localhost/callback",
  clientMetadata: { redirect_uris: ["http://localhost/callback"], client_name: "agent" },
  clientInformation() {}, saveClientInformation() {}, tokens() {}, saveTokens() {},
  redirectToAuthorization() {}, saveCodeVerifier() {}, codeVerifier() { return ""; },
};
const [packages, url, key] = process.argv.slice(-3);
const [{ Client }, { StreamableHTTPClientTransport }] = await Promise.all(packages.split(" ").map((name) => import(name)));
const seen = [];
const asks = async (target, init) => {
  const answer = await fetch(target, init);
  seen.push(`${init?.method ?? "GET"} ${new URL(target).pathname} ${answer.status}`);
  return answer;
};
const headers = key === "-" ? {} : { "X-API-Key": key };
const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider, fetch: asks, requestInit: { headers } });
const options = { versionNegotiation: { mode: "auto" } };
const error = await new Client({ name: "agent", version: "1.0.0" }, options).connect(transport).catch((error) => error);
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


async def main(_, url, key):
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
    let packages =
        ["sdk", "client", "server"].map(|name| tools.join("node_modules/@modelcontextprotocol").join(name));
    if !packages.iter().all(|package| package.exists()) {
        skip("MCP's SDK for TypeScript");
        return None;
    }
    // Packages are found from where it runs.
    let script = "cd \"$1\" && text=$2 && shift 2 && exec node --input-type=module -e \"$text\" -- \"$@\"";
    let tools = tools.to_str().unwrap();
    Some(("sh".into(), ["-c", script, "sh", tools, text].map(str::to_owned).to_vec()))
}

/// Servers of Python's SDK and of both generations of that for TypeScript.
const SERVERS: [(bool, &str); 3] = [(true, PYTHON_SERVER), (false, NODE_SERVER), (false, SECOND_NODE_SERVER)];

/// A program of an SDK, and where it writes.
struct Program {
    process: Process,
    _folder: TempDir,
}

impl Program {
    fn start(is_python: bool, text: &str, further: &[&str]) -> Option<Self> {
        let (file, mut arguments) = program(is_python, text)?;
        arguments.extend(further.iter().map(|&argument| argument.to_owned()));
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(&file, &arguments, &folder.path().join("log"), "");
        Some(Self { process, _folder: folder })
    }

    /// A server, and where it listens.
    fn server((is_python, text): (bool, &str)) -> Option<(SocketAddr, Self)> {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free_port(own_ip()).port());
        let server = Self::start(is_python, text, &[&address.port().to_string()])?;
        until("the server of MCP listens", SOON, || {
            assert_eq!(server.process.exit_code(), None, "{}", server.process.log());
            std::net::TcpStream::connect(address).ok()
        });
        Some((address, server))
    }
}

fn the_shipped_example_serves_the_servers_of_both_sdks_at_their_defaults(stage: &Stage) {
    let text = include_str!("../../conf/mcp-server.toml");
    for server in SERVERS {
        let Some((address, _server)) = Program::server(server) else { continue };
        let tenant = Tenant::first_of(text).set("upstreams", vec![address.to_string()]);
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
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().contains("\"serverInfo\""), "{}", answer.text());
    }
}

fn clients_of_both_sdks_that_look_for_a_login_show_why_there_is_none(stage: &Stage) {
    let site = Site::of(stage).set("keys.public_url", "https://keys.example").start();
    // The metadata is had at a host that is named.
    let host = site.gateway.address.ip().to_string();
    let tenant = Tenant::new("mcp", &host, site.upstream.address).set("mcp", true);
    site.gateway.put("mcp.toml", &tenant.text());
    site.gateway.reread("applied");
    let url = format!("http://{}/mcp", site.gateway.address);
    let unknown = unknown_key(63);
    for packages in ["", GENERATIONS[0], GENERATIONS[1]] {
        let is_python = packages.is_empty();
        for key in ["-", &*unknown] {
            let Some((file, arguments)) =
                program(is_python, if is_python { PYTHON_CLIENT } else { NODE_CLIENT })
            else {
                continue;
            };
            let Output { stdout, stderr, .. } = Command::new("timeout")
                .arg("240")
                .arg(file)
                .args(arguments)
                .args([packages, &*url, key])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&stdout);
            let about = format!("{said}{}", String::from_utf8_lossy(&stderr));
            let (seen, message) = said.split_once("message:").unwrap_or_else(|| panic!("{about}"));
            let looked: Vec<&str> =
                seen.lines().filter(|line| LOGINS.iter().any(|at| line.contains(at))).collect();
            assert!(!looked.is_empty() && looked.iter().all(|line| line.ends_with(" 404")), "{about}");
            // With a key, that for TypeScript shows it to the address for clients that register too.
            let refused = seen.lines().filter(|line| line.ends_with(" 401")).count();
            assert_eq!(refused, if is_python || key == "-" { 1 } else { 2 }, "{about}");
            assert!(message.contains(PAGE), "{about}");
            if key == "-" {
                assert!(seen.contains("POST /register 404"), "{about}");
                assert!(message.contains("There is no OAuth here; give the client its"), "{about}");
            }
        }
    }
}

/// Words that users read, by what their clients have done.
const READ: [(&str, &str); 8] = [
    (
        "wrong key",
        "The API key is unknown, revoked or another agent's. Ask the agent's owner for a key: https://keys.example/docs",
    ),
    (
        "no key",
        "An agent's credential is required. Ask the agent's owner for a key: https://keys.example/docs",
    ),
    ("tools", "change count hang search stops"),
    ("search", "found rain"),
    ("progress", "1 2"),
    ("stops", "by the server too"),
    ("heard", "a change"),
    ("billing_pay", "The agent's stake does not give it the tier that is required"),
];

/// Waits until each session of a program has said what came of this, and checks that its user reads these words. That for
/// TypeScript shows the body of a refusal whole.
fn reads(program: &Program, sessions: usize, what: &str, words: &str) {
    let log = until(&format!("{what}: {words}"), 4 * SOON, || {
        let mut log = program.process.log();
        assert_eq!(program.process.exit_code(), None, "{log}");
        // The last line may not be whole yet.
        log.truncate(log.rfind('\n').unwrap_or_default());
        (log.matches(&format!(" {what}: ")).count() == sessions).then_some(log)
    });
    for line in log.lines().filter(|line| line.contains(&format!(" {what}: "))) {
        let is_read =
            line.contains(&format!(" {what}: {words}")) || line.contains(&format!("\"message\":\"{words}"));
        assert!(is_read, "{words}\n{line}\n{log}");
    }
}

/// Each server before each client, of whichever revision they speak.
fn users_of_both_sdks_use_their_tools_and_read_why_one_is_refused(stage: &Stage) {
    let [Some((python, _python)), Some((node, _node)), Some((second, _second))] =
        SERVERS.map(Program::server)
    else {
        return;
    };
    let redis = Redis::start(&[]);
    let site = Site::of(stage).unlimited().agent(1).set("keys.public_url", "https://keys.example");
    let site = site.set("store.redis.url", redis.database()).set("store.redis.timeout", "5s").start();
    // The host that clients ask for.
    let host = site.gateway.address.ip().to_string();
    let tenant = Tenant::new("mcp", &host, python).set("host_header", "upstream").set("mcp", true);
    // These servers close a connection after five seconds, maybe while a call is on its way.
    let mut tenant = tenant
        .set("timeouts.idle", "1s")
        .set("requests_per_minute", vec![1_000_000; 4])
        .route("/mcp", "tools = ['billing_*']\nmin_tier = 2");
    for (path, server) in [("/node", node), ("/second", second)] {
        let to_it = format!("upstreams = ['{server}']");
        tenant =
            tenant.route(path, &format!("tools = ['billing_*']\nmin_tier = 2\n{to_it}")).route(path, &to_it);
    }
    let becomes = |tenant: &Tenant| {
        site.gateway.put("mcp.toml", &tenant.text());
        site.gateway.reread("applied");
    };
    becomes(&tenant);
    let urls = ["mcp", "node", "second"].map(|path| format!("http://{}/{path}", site.gateway.address));
    let arguments = [&*unknown_key(64), site.key(), &*urls[0], &*urls[1], &*urls[2]];
    let clients = [(true, PYTHON_CALLS, 6), (false, NODE_CALLS, 9)]
        .map(|(is_python, text, sessions)| (Program::start(is_python, text, &arguments).unwrap(), sessions));
    for (program, sessions) in &clients {
        READ.iter().for_each(|(what, words)| reads(program, *sessions, what, words));
    }
    let said = clients[0].0.process.log();
    assert!(said.contains("/mcp auto revision: 2026-07-28"), "{said}");
    reads(&clients[1].0, clients[1].1, "closed", "without trouble");
    let said = clients[1].0.process.log();
    for (path, revision) in [("/mcp", "2026-07-28"), ("/node", "2025-11-25"), ("/second", "2026-07-28")] {
        for line in [
            format!("{path} second auto revision: {revision}"),
            format!(
                "{path} second auto wrong key: Version negotiation failed: the server requires authorization (HTTP 401)"
            ),
        ] {
            assert!(said.contains(&line), "{line}\n{said}");
        }
    }
    let full = tenant.clone().set("limits.max_in_flight", 1).set("limits.max_queued", 0);
    let ends: [(&dyn Fn(), &str); 6] = [
        (
            &|| becomes(&tenant.clone().set("requests_per_minute", vec![1; 4])),
            "The rate limit is reached; try again in",
        ),
        // The streams that older clients listen to have more places than that.
        (&|| becomes(&full), "The gateway has no room for the request at the moment; try again later"),
        (&|| becomes(&tenant), "found rain"),
        (&|| redis.freeze(true), "The service failed to process the request; try again later"),
        (
            &|| {
                redis.freeze(false);
                until("the store is read again", SOON, || {
                    let request = Request::get(&host, "/other").key(site.key());
                    (site.gateway.ask(&request).status != 500).then_some(())
                });
            },
            "found rain",
        ),
        (&|| drop(site.gateway.service.revoke(&site.agent().signed()).success(200)), READ[0].1),
    ];
    for (number, (happens, words)) in (1..).zip(ends) {
        happens();
        for (program, _) in &clients {
            let signal = Command::new("kill").args(["-USR2", &program.process.pid.to_string()]).status();
            assert!(signal.unwrap().success());
        }
        for (program, sessions) in &clients {
            reads(program, *sessions, &format!("signal {number}"), words);
        }
    }
}
