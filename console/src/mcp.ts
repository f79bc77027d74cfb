// The first request to an endpoint of MCP asks for its tools.

/** Sends a request to the endpoint. */
type Ask = (init: RequestInit, headers: Record<string, string>) => Promise<Response>;

/** The revisions that this page speaks: those whose headers say no method. Servers of both SDKs take the newest. */
const REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26"];

/** Asks for the tools. The answer that lists them, or the first that is none of a server of MCP that goes on. */
export async function listTools(ask: Ask): Promise<Response> {
  const headers: Record<string, string> = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
  const post = (message: object) => ask({ method: "POST", body: JSON.stringify({ jsonrpc: "2.0", ...message }) }, headers);
  const clientInfo = { name: "Tiergate", version: "1.0.0" };
  const begun = await post({ id: 1, method: "initialize", params: { protocolVersion: REVISIONS[0], capabilities: {}, clientInfo } });
  const revision = valueIn(await messageIn(begun), "result", "protocolVersion");
  if (!begun.ok || typeof revision !== "string" || !REVISIONS.includes(revision)) return begun;
  headers["MCP-Protocol-Version"] = revision;
  const session = begun.headers.get("mcp-session-id");
  if (session) headers["Mcp-Session-Id"] = session;
  const ready = await post({ method: "notifications/initialized" });
  if (!ready.ok) return ready;
  // Browsers give an answer up that nobody reads.
  await ready.text();
  const list = await post({ id: 2, method: "tools/list" });
  // A session that ends takes its answers with it.
  await messageIn(list);
  if (session)
    ask({ method: "DELETE" }, headers)
      .then((ended) => ended.text())
      .catch(() => {});
  return list;
}

/** The message in an answer, which stays readable: its body, or the last event's data. */
export async function messageIn(answer: Response): Promise<string> {
  const text = await answer.clone().text();
  if (!answer.headers.get("content-type")?.startsWith("text/event-stream")) return text;
  const events = text.replace(/\r\n?/g, "\n").split("\n\n").map(dataIn);
  return events.findLast((data) => data !== "") ?? "";
}

function dataIn(event: string): string {
  const lines = event.split("\n").filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice("data:".length).trimStart()).join("\n");
}

/** The answer as one of the gateway without MCP, whose refusals are those of the contract. */
export async function unwrapped(answer: Response): Promise<Response> {
  const data = valueIn(await messageIn(answer), "error", "data");
  return data === undefined ? answer : new Response(JSON.stringify(data), answer);
}

/** A field of a field of an object in JSON. */
export function valueIn(text: string, outer: string, inner: string): unknown {
  try {
    return JSON.parse(text)?.[outer]?.[inner];
  } catch {
    return undefined;
  }
}
