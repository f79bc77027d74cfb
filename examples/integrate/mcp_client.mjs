// A client of MCP with the official SDK.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { agentFetch } from "tiergate";

const gateway = "http://127.0.0.1:8001";
const fetch = agentFetch(gateway, { apiKeyFile: "service.key" });
const client = new Client({ name: "agent", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(`${gateway}/mcp`), { fetch }));
const onprogress = ({ progress, total }) => console.log("progress", progress, total);
const ask = { name: "forecast", arguments: { city: "Lisbon" } };
const { content } = await client.callTool(ask, undefined, { onprogress });
console.log(content[0].text);
await client.close();
