const REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26"];
export async function listTools(ask) {
    const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
    const post = (message) => ask({ method: "POST", body: JSON.stringify({ jsonrpc: "2.0", ...message }) }, headers);
    const clientInfo = { name: "Tiergate", version: "1.0.0" };
    const begun = await post({ id: 1, method: "initialize", params: { protocolVersion: REVISIONS[0], capabilities: {}, clientInfo } });
    const revision = valueIn(await messageIn(begun), "result", "protocolVersion");
    if (!begun.ok || typeof revision !== "string" || !REVISIONS.includes(revision))
        return begun;
    headers["MCP-Protocol-Version"] = revision;
    const session = begun.headers.get("mcp-session-id");
    if (session)
        headers["Mcp-Session-Id"] = session;
    const ready = await post({ method: "notifications/initialized" });
    if (!ready.ok)
        return ready;
    await ready.text();
    const list = await post({ id: 2, method: "tools/list" });
    await messageIn(list);
    if (session)
        ask({ method: "DELETE" }, headers)
            .then((ended) => ended.text())
            .catch(() => { });
    return list;
}
export async function messageIn(answer) {
    const text = await answer.clone().text();
    if (!answer.headers.get("content-type")?.startsWith("text/event-stream"))
        return text;
    const events = text.replace(/\r\n?/g, "\n").split("\n\n").map(dataIn);
    return events.findLast((data) => data !== "") ?? "";
}
function dataIn(event) {
    const lines = event.split("\n").filter((line) => line.startsWith("data:"));
    return lines.map((line) => line.slice("data:".length).trimStart()).join("\n");
}
export async function unwrapped(answer) {
    const data = valueIn(await messageIn(answer), "error", "data");
    return data === undefined ? answer : new Response(JSON.stringify(data), answer);
}
export function valueIn(text, outer, inner) {
    try {
        return JSON.parse(text)?.[outer]?.[inner];
    }
    catch {
        return undefined;
    }
}
