# A client of MCP, by both generations of the protocol.
import asyncio
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tiergate import GatewayAuth, by_key

gateway = "http://127.0.0.1:8001"


async def progress(done: float, total: float | None, _: str | None) -> None:
    print("progress", done, total)


async def main() -> None:
    auth = GatewayAuth(gateway, by_key(Path("service.key")))
    for mode in ("auto", "legacy"):
        async with httpx2.AsyncClient(auth=auth, timeout=60) as http:
            async with Client(streamable_http_client(f"{gateway}/mcp", http_client=http), mode=mode) as client:
                result = await client.call_tool("forecast", {"city": "Lisbon"}, progress_callback=progress)
                print(mode, result.content[0].text)


asyncio.run(main())
