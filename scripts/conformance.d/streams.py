"""Server-sent events, and MCP's streamable HTTP with its own library at both ends."""

import asyncio
import os
import sys
import time

import httpx
from httpx_sse import connect_sse

from harness import Process, check, equal, holds, seconds, until

HERE = os.path.dirname(os.path.abspath(__file__))


def clients(world):
    yield (
        "clear",
        httpx.Client(base_url=f"http://127.0.0.1:{world.clear.port}", headers={"Host": "http.example"}, timeout=seconds(20)),
    )
    base = f"https://127.0.0.1:{world.tls.port}"
    yield "TLS", httpx.Client(base_url=base, headers={"Host": "http.example"}, timeout=seconds(20), verify=False)


@check("sse: events come one by one, in order, with id and name (httpx-sse)")
def _events(world):
    notes = []
    for name, client in clients(world):
        came = []
        with client, connect_sse(client, "GET", "/public/events?count=5&pause=0.3") as source:
            for event in source.iter_sse():
                came.append((time.monotonic(), event))
        equal([(e.event, e.id, e.json()["n"]) for _, e in came], [("tick", str(n), n) for n in range(5)], "events")
        pauses = [later[0] - earlier[0] for earlier, later in zip(came, came[1:])]
        holds(min(pauses) > 0.1, f"events came together: pauses {pauses}")
        notes.append(f"{name}: pauses of {min(pauses):.2f} to {max(pauses):.2f} s where the server makes 0.30")
    return "; ".join(notes)


@check("sse: the first event comes while the stream is open (curl -N), over HTTP/1.1 and HTTP/2")
def _curl(world):
    for version in ("--http1.1", "--http2-prior-knowledge"):
        begun = time.monotonic()
        status, out, _ = world.clear.curl("/public/events?count=50&pause=0.2", "-N", version, "-m", "1")
        equal(status, 28, "curl's status (28: its own time limit)")
        holds(out.count("event: tick") >= 2, f"{out.count('event: tick')} events in {time.monotonic() - begun:.1f} s")


@check("sse: a client that leaves is noticed by the server")
def _leaves(world):
    path = "/public/events?count=1000&pause=0.05"
    status, out, _ = world.clear.curl(path, "-N", "-m", "0.5")
    equal((status, "event: tick" in out), (28, True), "curl's status (28: its own time limit), and events")
    until("the server notices", lambda: path in world.upstream.cut_off, 5)


@check("mcp: a session over streamable HTTP: initialize, list, call, progress, end")
def _mcp(world):
    if not hasattr(world, "mcp"):
        script = os.path.join(HERE, "mcp_server.py")
        world.mcp = Process([sys.executable, script, str(world.ports["mcp"])], os.path.join(world.folder, "mcp.log"))
        world.others.append(world.mcp)
        until("the MCP server listens", lambda: "running on" in world.mcp.log().lower() or not world.mcp.is_alive())
        holds(world.mcp.is_alive(), "the MCP server does not start: " + world.mcp.log()[-150:])
    _, out, _ = world.clear.curl("/mcp", "-d", "{}", "-o", "/dev/null", "-w", "%{http_code}", host="mcp.example")
    equal(out, "401", "the status without a key")
    return asyncio.run(session(f"http://127.0.0.1:{world.clear.port}/mcp", world.clear.key))


async def session(url, key):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    http = httpx.AsyncClient(headers={"Host": "mcp.example", "Authorization": f"Bearer {key}"}, timeout=seconds(20))
    seen = []

    async def progress(done, total, message):
        seen.append(done)

    async with streamable_http_client(url, http_client=http) as streams:
        async with ClientSession(streams[0], streams[1]) as client:
            greeted = await client.initialize()
            tools = await client.list_tools()
            equal(sorted(tool.name for tool in tools.tools), ["add", "work"], "tools")
            added = await client.call_tool("add", {"a": 2, "b": 3})
            equal(added.content[0].text, "5", "sum")
            worked = await client.call_tool("work", {"steps": 3}, progress_callback=progress)
            equal(worked.content[0].text, "done", "result")
            equal(len(seen), 3, "progress notifications")
    return f"protocol {getattr(greeted, 'protocol_version', None) or greeted.protocolVersion}"
